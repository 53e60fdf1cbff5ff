"""What a worker finds in its environment under `rallypoint run`, variable by variable, beside torchrun's."""

import json
import pathlib

import pytest
from launchers import Job, Ours, Stock

JOB = pathlib.Path(__file__).with_name("environment_job.py")

# Ours in addition.
ADDED = {"RALLYPOINT_ATTEMPT", "RALLYPOINT_NODE_ID", "RALLYPOINT_NOTICE_FILE", "RALLYPOINT_ROUND"}


def environments(kind, directory, nodes, environment):
    """Runs a job of one launcher for each list of options. Returns the environments of its workers, by role, node
    and rank."""
    seen = directory / kind.name
    seen.mkdir()
    with Job(kind, directory, len(nodes)) as job:
        for options in nodes:
            job.start(*options, JOB, seen, **environment)
        assert job.exit_codes() == [0] * len(nodes), job.said()
    return {file.name: comparable(json.loads(file.read_text()), job) for file in seen.iterdir()}


def comparable(variables, job):
    """The same, without what is different from job to job."""
    assert 0 < int(variables["MASTER_PORT"]) < 65536
    variables["MASTER_PORT"] = "a port"
    # A new directory for each job, and ours are named by round and rank.
    variables["TORCHELASTIC_ERROR_FILE"] = pathlib.PurePath(variables["TORCHELASTIC_ERROR_FILE"]).name
    return {name: "the run" if value == job.run_id else value for name, value in variables.items()}


SHAPES = {
    "one worker": ([["--nproc-per-node", 1]], {"OMP_NUM_THREADS": None}),
    "two workers": ([["--nproc-per-node", 2, "--max-restarts", 3]], {"OMP_NUM_THREADS": None}),
    "own threads": ([["--nproc-per-node", 2]], {"OMP_NUM_THREADS": "2", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
    "no files": ([["--nproc-per-node", 2, "--log-dir", "/dev/null"]], {}),
    "signals": ([["--signals-to-handle", "SIGTERM,SIGUSR1"]], {}),
    "devices": ([["--nproc-per-node", 2, "--virtual-local-rank"]], {"CUDA_VISIBLE_DEVICES": "3,5"}),
    "two roles": ([["--nproc-per-node", 2, "--role", "trainer"], ["--nproc-per-node", 1, "--role", "evaluator"]], {}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_environment_is_torchruns(shape, tmp_path):
    nodes, environment = SHAPES[shape]
    stock = environments(Stock(), tmp_path, nodes, environment)
    ours = environments(Ours(), tmp_path, in_order(nodes, stock), environment)
    assert {worker: variables.keys() & ADDED for worker, variables in ours.items()} == dict.fromkeys(ours, ADDED)
    for variables in ours.values():
        assert (variables["RALLYPOINT_ROUND"], variables["RALLYPOINT_ATTEMPT"]) == ("1", "0")
        for name in ADDED:
            del variables[name]
    assert ours == stock, "ours (left) is not as stock (right)"


def in_order(nodes, stock):
    """torchrun's nodes have ranks as it happens; ours are to have the same."""
    if len(nodes) == 1:
        return nodes
    ranks = {worker.split("-")[0]: worker.split("-")[1] for worker in stock}
    return [[*options, "--node-rank", ranks[options[-1]]] for options in nodes]
