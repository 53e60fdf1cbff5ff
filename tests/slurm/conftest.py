"""What the tests on a real Slurm share: one cluster, whose nodes are whole again after each test."""

import signal

import pytest
from cluster import Cluster
from jobs import Job

# What a test run inherited as ignored (`nohup`, a shell's `&`), its children would ignore too.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture(scope="session")
def whole_cluster(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("slurm"))
    yield cluster
    cluster.close()


@pytest.fixture
def cluster(whole_cluster):
    yield whole_cluster
    whole_cluster.repair()


@pytest.fixture
def submit(cluster, tmp_path):
    """Submits the lines of a batch script."""
    return lambda *lines, **options: Job(cluster, tmp_path, *lines, **options)
