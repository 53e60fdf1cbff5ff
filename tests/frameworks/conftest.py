"""What the tests of other frameworks share: two hosts, or a real Slurm, and a job in a directory of its own."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest
from cluster import Cluster
from hosts import TARGET, Network, until

JOB = pathlib.Path(__file__).with_name("jax_job.py")
RALLYPOINT = TARGET / "debug" / "rallypoint"
# Every process has one device, and all share a machine.
CPU = {"JAX_PLATFORMS": "cpu", "PYTHON_EXEC": sys.executable}

# What a test run inherited as ignored (`nohup`, a shell's `&`), its children would ignore too.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)


def group(directory, size, after=None, failed=lambda: None):
    """The processes of one round, by rank, as they see themselves once all of them have a sum."""
    last = after[0]["round"] if after else -1

    def formed():
        seen = [json.loads(file.read_text()) for file in directory.glob("seen-*")]
        rounds = {one["round"] for one in seen if one["round"] > last}
        new = [one for one in seen if one["round"] == max(rounds, default=None)]
        return len(new) == size and sorted(new, key=lambda one: one["id"])

    found = until(f"{size} processes of JAX have met", formed, failed)
    assert [one["id"] for one in found] == list(range(size))
    for one in found:
        assert one["processes"] == size and one["local"] == 1
        assert one["sum"] == int("1" * size), "each process has added a decimal place of its own"
    assert len({one["coordinator"] for one in found}) == 1
    return found


def is_alive(process):
    try:
        text = pathlib.Path(f"/proc/{process['pid']}/stat").read_text()
    except OSError:
        return False
    return text.rsplit(")", 1)[1].split()[0] not in "XZ"


class Launchers:
    """`rallypoint run` on each of the hosts, with two workers each."""

    def __init__(self, network, directory):
        self.network = network
        self.directory = directory
        self.started = []

    def start(self, *options):
        meeting = ["--nnodes", str(len(self.network.hosts)), "--rdzv-endpoint", "one", "--rdzv-id", "jax"]
        run = [RALLYPOINT, "run", *meeting, "--nproc-per-node", "2", "--max-restarts", "3", *options, JOB]
        for host in self.network.hosts.values():
            with open(self.directory / f"{host.name}.log", "wb") as log:
                command = host.enter(*run, directory=self.directory)
                environment = {**os.environ, **CPU}
                self.started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))

    def failed(self):
        """What the launchers said, if one has failed."""
        if any(process.poll() for process in self.started):
            return "".join(file.read_text() for file in sorted(self.directory.glob("*.log")))
        return None

    def group(self, size, after=None):
        return group(self.directory, size, after, self.failed)

    def end(self):
        """Lets the workers succeed."""
        (self.directory / "go").touch()
        until("the launchers have ended", lambda: all(process.poll() is not None for process in self.started))
        assert [process.returncode for process in self.started] == [0, 0], self.failed()


@pytest.fixture
def launchers(tmp_path):
    network = Network(tmp_path, ["one", "two"])
    launchers = Launchers(network, tmp_path)
    yield launchers
    network.close()
    for process in launchers.started:
        process.wait()


@pytest.fixture
def cluster(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("slurm"))
    cluster.environment.update(CPU, PYTHONPATH=os.environ.get("PYTHONPATH", ""))
    yield cluster
    cluster.close()
