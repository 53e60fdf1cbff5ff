"""`examples/train.py` under `rallypoint run`: whatever is killed, the weights at the end are those of a training
that nothing happened to."""

import os
import re
import signal

import pytest
import torch
from hosts import Network
from launchers import EXAMPLE, Job, Ours, Stock
from servers import Serve

EPOCHS, STEPS, EVERY = 2, 20, 3
TRAINING = ["--epochs", EPOCHS, "--steps", STEPS, "--batch", 24, "--checkpoint-every", EVERY]

# Of a step, so that there is time to kill something. The whole is to take much longer than it takes to do that.
SLOWLY = ["--step-seconds", 0.25]


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """The weights after a training by torchrun: four ranks on one node, to which nothing happens."""
    directory = tmp_path_factory.mktemp("undisturbed")
    with Job(Stock(), directory) as job:
        job.start("--nproc-per-node", 4, *training(directory))
        assert job.exit_codes() == [0], job.said()
    return weights(directory)


def training(directory):
    files = ["--checkpoint", directory / "checkpoint.pt", "--weights-hash", directory / "weights"]
    return [EXAMPLE, *TRAINING, *files]


def weights(directory):
    return (directory / "weights").read_text()


def saved(directory):
    """The step of the checkpoint, or 0."""
    try:
        return torch.load(directory / "checkpoint.pt", weights_only=True)["step"]
    except FileNotFoundError:
        return 0


def starts(job):
    """With how many ranks and from which steps the training began and went on, in that order."""
    found = re.findall(r"(\d+) ranks, from step (\d+) of", job.said())
    return sorted((tuple(map(int, start)) for start in found), key=lambda start: start[1])


@pytest.fixture
def job(tmp_path):
    """Four ranks over two launchers, in the middle of an epoch."""
    with Job(Ours(), tmp_path, nodes=2) as job:
        for _ in range(2):
            start(job, tmp_path)
        job.wait_for("a checkpoint", lambda: saved(tmp_path))
        yield job


def start(job, directory, **options):
    return job.start("--nproc-per-node", 2, "--max-restarts", 1, *training(directory), *SLOWLY, **options)


def check(job, directory, undisturbed, exit_codes):
    assert job.exit_codes() == exit_codes, job.said()
    begun, *resumed = starts(job)
    assert begun == (4, 0), job.said()
    assert resumed, job.said()
    for ranks, step in resumed:
        assert ranks == 4 and 0 < step < EPOCHS * STEPS, job.said()
    assert weights(directory) == undisturbed, job.said()
    assert not job.workers()


@pytest.mark.parametrize("rank", [0, 3])
def test_a_worker_is_killed(rank, job, tmp_path, undisturbed):
    os.kill(job.workers()[rank], signal.SIGKILL)
    check(job, tmp_path, undisturbed, [0, 0])


def test_a_launcher_is_killed_and_started_again(job, tmp_path, undisturbed):
    job.launchers[1].kill()
    start(job, tmp_path)
    check(job, tmp_path, undisturbed, [0, -signal.SIGKILL, 0])


def test_the_launcher_that_hosts_the_server_is_killed_and_started_again(job, tmp_path, undisturbed):
    job.launchers[0].kill()
    start(job, tmp_path, host=True)
    check(job, tmp_path, undisturbed, [-signal.SIGKILL, 0, 0])


def test_the_node_of_rank_0_is_lost(tmp_path):
    """The others go on without it, and meet at the store of the new rank 0: a rank that was told of the old one
    would never find the others. What they meet at is a server of its own, which no launcher's end takes away."""
    with Serve() as server, Job(Ours(), tmp_path, nodes="2:3") as job:
        job.port = server.port
        for _ in range(3):
            job.start("--max-restarts", 1, *training(tmp_path), *SLOWLY, host=False)
        job.wait_for("a checkpoint", lambda: saved(tmp_path))
        lost = job.launcher_of(0)
        lost.kill()
        codes = {launcher.exit_code() for launcher in job.launchers if launcher is not lost}
        assert codes == {0}, job.said()
        begun, *resumed = starts(job)
        assert begun == (3, 0) and resumed[-1][0] == 2 and resumed[-1][1] > 0, job.said()
        assert weights(tmp_path)


@pytest.mark.alone
def test_the_host_of_the_head_is_killed_and_replaced(tmp_path, undisturbed):
    """Another host serves, and the job goes on there as soon as a new node is there, on a host that was not in it."""
    names = [f"node{number}" for number in range(5)]
    network = Network(tmp_path, names)
    try:
        with Job(Ours(), tmp_path, nodes=4) as job:
            meeting = ["--nnodes", "4", "--rdzv-id", job.run_id, "--rdzv-endpoint", ",".join(names[:3])]
            job.meeting = [*meeting, "--rdzv-conf", "lease_ttl=20"]

            def start_on(name):
                options = ["--max-restarts", 1, *training(tmp_path), *SLOWLY]
                job.start(*options, by=network.hosts[name].enter(), GLOO_SOCKET_IFNAME="eth0")

            for name in names[:4]:
                start_on(name)
            job.wait_for("a checkpoint", lambda: saved(tmp_path))
            network.hosts["node0"].kill()
            start_on("node4")
            check(job, tmp_path, undisturbed, [-signal.SIGKILL, 0, 0, 0, 0])
    finally:
        network.close()


def test_a_node_comes_in_mid_run(tmp_path):
    """The workers are given notice, save at once, and nothing that was done is done again."""
    with Job(Ours(last_call_timeout=5), tmp_path, nodes="1:2") as job:
        never = ["--checkpoint-every", EPOCHS * STEPS]
        for workers in (2, 2):
            job.start("--nproc-per-node", workers, "--notice", 2, *training(tmp_path), *SLOWLY, *never)
            job.wait_for("a step", lambda: re.search("ranks, from step", job.said()))
        assert job.exit_codes() == [0, 0], job.said()
        (before, began), (after, step) = starts(job)
        assert (before, began, after) == (2, 0, 4), job.said()
        assert 0 < step < EPOCHS * STEPS, job.said()
