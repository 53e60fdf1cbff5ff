"""Dask under `rallypoint run`: the command of the guide, on one host."""

import os
import re
import shlex
import signal
import subprocess
import sys

from conftest import RALLYPOINT
from distributed import Client
from hosts import ROOT, until

GUIDE = ROOT / "docs" / "guides" / "frameworks.md"


def command():
    """The command of the guide, on one host instead of several."""
    (line,) = re.findall(r"^\$ rallypoint (run .*dask .*)$", GUIDE.read_text(), re.MULTILINE)
    words = shlex.split(line)
    at = words.index("--nnodes")
    end = words.index("--rdzv-id") + 2
    return [RALLYPOINT, *words[:at], "--standalone", *words[end:]]


def cluster(directory, before=None):
    """The address of the scheduler, once it is another than before."""
    file = directory / "scheduler"
    return until("there is a scheduler", lambda: file.exists() and (file.read_text().strip() or before) != before
                 and file.read_text().strip())  # fmt: skip


def pids(client):
    return sorted(client.run(os.getpid).values())


def test_a_lost_worker_starts_the_cluster_again(tmp_path):
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "SCHEDULER_FILE": "scheduler"}
    run = command()
    with open(tmp_path / "log", "wb") as log:
        launcher = subprocess.Popen(run, cwd=tmp_path, env=environment, stdout=log, stderr=log)
    try:
        first = cluster(tmp_path)
        with Client(first, timeout=60) as client:
            client.wait_for_workers(3, timeout=60)
            assert client.gather(client.map(lambda n: n * n, range(4))) == [0, 1, 4, 9]
            old = pids(client)
            assert len(old) == 3
        os.kill(old[0], signal.SIGKILL)
        second = cluster(tmp_path, before=first)
        with Client(second, timeout=60) as client:
            client.wait_for_workers(3, timeout=60)
            assert not set(pids(client)) & set(old)
            assert client.submit(sum, [1, 2, 3]).result() == 6
    finally:
        launcher.send_signal(signal.SIGTERM)
        assert launcher.wait(60) == 128 + signal.SIGTERM, (tmp_path / "log").read_text()
