"""The wheel as its users have it: installed with pip beside stock PyTorch, in an environment that has nothing else
of this checkout. `make test-wheel` does it with the wheel for others, the rest of the tests with the quick build."""

import os
import pathlib
import subprocess
import sys
import sysconfig

import pytest
from launchers import Job
from servers import HOST, TARGET, ServerProcess
from test_training import training, weights

LOOK = "import rallypoint, sys; print(rallypoint.__version__, rallypoint.__file__, 'torch' in sys.modules, sep='\\n')"


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Where the programs of a fresh environment are. Its PyTorch is the one that is here, which is 5 GB less."""
    environment = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    programs = environment / "bin"
    wheel = os.environ.get("RALLYPOINT_WHEEL") or next((TARGET / "wheel" / "dev").glob("*.whl"))
    pip = [programs / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index"]
    subprocess.run([*pip, wheel], check=True, env=clean())
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "torch.pth").write_text(sysconfig.get_path("purelib"))
    return programs


def clean():
    """The environment variables without those that lead to another build of the package."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


class Torchrun:
    """Stock torchrun in that environment."""

    def __init__(self, programs, backend):
        self.name = backend
        self.command = [programs / "python", "-m", "torch.distributed.run"]

    def meeting(self, nodes, port, run_id, host):
        meeting = {"nnodes": nodes, "rdzv-backend": self.name, "rdzv-endpoint": f"{HOST}:{port}", "rdzv-id": run_id}
        return [f"--{name}={value}" for name, value in meeting.items()]


def trained(programs, directory, backend, port=None):
    """The weights after a training by two launchers that were given the same command."""
    with Job(Torchrun(programs, backend), directory, nodes=2) as job:
        job.port = port or job.port
        for _ in range(2):
            job.start("--nproc-per-node", 2, *training(directory), PYTHONPATH=None)
        assert job.exit_codes() == [0, 0], job.said()
        assert not job.workers()
    return weights(directory)


@pytest.mark.usefixtures("each_etcd")
def test_two_shells_train_as_with_pytorchs_own(programs, tmp_path):
    """With nothing else started; and on a real etcd, which the command of the wheel starts here."""
    directories = [tmp_path / name for name in ("c10d", "rallypoint", "etcd-v3")]
    for directory in directories:
        directory.mkdir()
    stock, embedded, etcd = directories
    expected = trained(programs, stock, "c10d")
    assert trained(programs, embedded, "rallypoint") == expected
    serve = [programs / "rallypoint", "serve", "--engine", "etcd", "--listen", f"{HOST}:0", "--stop-at-eof"]
    with ServerProcess(serve) as server:
        assert trained(programs, etcd, "etcd-v3", server.port) == expected


def test_what_is_run_is_what_was_installed(programs):
    def said(program, *arguments):
        command = [programs / program, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=clean()).stdout

    version, file, torch = said("python", "-c", LOOK).splitlines()
    assert pathlib.Path(file).is_relative_to(programs.parent)
    assert torch == "False", "PyTorch was imported before it was needed"
    assert said("rallypoint", "--version") == f"rallypoint {version}\n"
