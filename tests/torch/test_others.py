"""Other people's launchers, from PyPI, with our backend: each runs a job of two processes on two nodes, in its own
words, with nothing else started."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from agents import die_with_parent, until
from servers import HOST, ROOT, free_port

WORKER = pathlib.Path(__file__).with_name("others_job.py")

SERVES = "this process runs the server"


@pytest.fixture(scope="session")
def programs():
    """Where the programs of an environment with PyTorch and the others' launchers are."""
    script = [ROOT / "scripts" / "torch-env", "launchers"]
    python = pathlib.Path(subprocess.run(script, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())
    assert python.exists()
    return python.parent


class Nodes:
    """Launchers that run to their end, and what their workers wrote down."""

    def __init__(self, programs, directory):
        self.programs = programs
        self.directory = directory
        self.port = free_port()
        self.launchers = []

    def start(self, *command, **environment):
        # torchrun itself is a program of the other environment.
        path = [self.programs, pathlib.Path(sys.executable).parent, os.environ["PATH"]]
        surroundings = {
            **os.environ, "PATH": os.pathsep.join(map(str, path)), "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HOME": str(self.directory),
            "HOME": str(self.directory), "TMPDIR": str(self.directory), **environment,
        }  # fmt: skip
        output = self.directory / f"launcher{len(self.launchers)}.out"
        with open(output, "wb") as file:
            launcher = subprocess.Popen(
                [str(part) for part in command], stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=surroundings,
                cwd=self.directory, preexec_fn=die_with_parent,
            )  # fmt: skip
        self.launchers.append((launcher, output))

    def said(self, words):
        """Waits until a launcher has said this. None ends before."""

        def is_said():
            ended = any(launcher.poll() is not None for launcher, _ in self.launchers)
            said = words in self.report()
            assert said or not ended, self.report()
            return said

        until(is_said, repr(words), self.report)

    def report(self):
        return "\n".join(f"--- {output.name}\n{output.read_text(errors='replace')}" for _, output in self.launchers)

    def results(self):
        """What the workers found, by rank, when all launchers have ended well."""
        for launcher, output in self.launchers:
            until(lambda launcher=launcher: launcher.poll() is not None, f"the end of {output.name}", self.report)
        assert [launcher.returncode for launcher, _ in self.launchers] == [0] * len(self.launchers), self.report()
        return [json.loads(path.read_text()) for path in sorted(self.directory.glob("rank*.json"))]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for launcher, _ in self.launchers:
            launcher.kill()
            launcher.wait()


@pytest.fixture
def nodes(programs, tmp_path):
    with Nodes(programs, tmp_path) as nodes:
        yield nodes


def worked(nodes):
    """Both workers were in one group, by way of our agents' store."""
    results = nodes.results()
    assert [found["RANK"] for found in results] == ["0", "1"], nodes.report()
    assert {found["WORLD_SIZE"] for found in results} == {"2"}
    assert {found["TORCHELASTIC_USE_AGENT_STORE"] for found in results} == {"True"}
    assert {found["total"] for found in results} == {2.0}
    return results


def test_accelerate(nodes):
    """It calls PyTorch's launcher by itself, and has other words for its options."""
    for rank in range(2):
        nodes.start(
            nodes.programs / "accelerate", "launch", "--multi_gpu", "--num_machines", 2, "--num_processes", 2,
            "--machine_rank", rank, "--main_process_ip", HOST, "--main_process_port", nodes.port,
            "--rdzv_backend", "rallypoint", "--rdzv_conf", "join_timeout=120", "--max_restarts", 1,
            "--mixed_precision", "no", "--dynamo_backend", "no", WORKER, nodes.directory, "accelerate",
        )  # fmt: skip
        # It looks whether the port is free, on the first machine.
        nodes.said(SERVES)
    worked(nodes)


def test_accelerate_on_one_machine(nodes):
    nodes.start(
        nodes.programs / "accelerate", "launch", "--multi_gpu", "--num_machines", 1, "--num_processes", 2,
        "--main_process_port", nodes.port, "--rdzv_backend", "rallypoint", "--mixed_precision", "no",
        "--dynamo_backend", "no", WORKER, nodes.directory, "accelerate",
    )  # fmt: skip
    worked(nodes)


def test_lightning_under_torchrun(nodes):
    for _ in range(2):
        nodes.start(
            nodes.programs / "python", "-m", "torch.distributed.run", "--nnodes", 2, "--nproc-per-node", 1,
            "--rdzv-backend", "rallypoint", "--rdzv-endpoint", f"{HOST}:{nodes.port}", "--rdzv-id", "lightning",
            WORKER, nodes.directory, "lightning",
        )  # fmt: skip
    worked(nodes)


def test_torchx_dist_ddp(nodes):
    """Its local scheduler starts two torchruns, which are to meet at `localhost`."""
    nodes.start(
        nodes.programs / "torchx", "run", "--scheduler", "local_cwd", "dist.ddp", "-j", "2x1",
        "--rdzv_backend", "rallypoint", "--rdzv_port", nodes.port, "--script", WORKER, "--", nodes.directory, "plain",
    )  # fmt: skip
    worked(nodes)


def test_torchx_dist_ddp_on_one_node(nodes):
    """Which is told `localhost:0`."""
    nodes.start(
        nodes.programs / "torchx", "run", "--scheduler", "local_cwd", "dist.ddp", "-j", "1x2",
        "--rdzv_backend", "rallypoint", "--script", WORKER, "--", nodes.directory, "plain",
    )  # fmt: skip
    worked(nodes)


def test_kubeflow_sets_variables(nodes):
    """What its operators give a pod in the static form, and the backend, which is the user's choice."""
    for rank in (1, 0):
        nodes.start(
            nodes.programs / "python", "-m", "torch.distributed.run", WORKER, nodes.directory, "plain",
            PET_RDZV_BACKEND="rallypoint", PET_NNODES="2", PET_NPROC_PER_NODE="1", PET_NODE_RANK=str(rank),
            PET_MASTER_ADDR=HOST, PET_MASTER_PORT=str(nodes.port), MASTER_ADDR=HOST, MASTER_PORT=str(nodes.port),
            WORLD_SIZE="2", RANK=str(rank), PYTHONUNBUFFERED="1",
        )  # fmt: skip
    assert [found["PET_NODE_RANK"] for found in worked(nodes)] == ["0", "1"]
