"""What the tests of the Python package share. They run in an environment into which the wheel was installed."""

import contextlib
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile

import pytest
from etcds import each_etcd, etcds, pytest_generate_tests  # noqa: F401  Fixtures, and a hook.

import rallypoint

HOST = "127.0.0.1"
ROOT = pathlib.Path(__file__).resolve().parents[2]

# What a test run inherited as ignored (`nohup`, a shell's `&`), its children would ignore too.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def temporary_files():
    """A server in memory that is killed leaves a note for the next one, and a launcher that is killed its logs. Both
    are in a directory that goes with the tests."""
    with tempfile.TemporaryDirectory(prefix="rallypoint-tests-") as directory, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", directory)
        # This process knows by now where they would have been.
        patch.setattr(tempfile, "tempdir", directory)
        patch.delenv("XDG_RUNTIME_DIR", raising=False)
        yield


@pytest.fixture
def server():
    with rallypoint.Server() as server:
        yield server


@pytest.fixture
def free_port():
    """A port that is free, and that nothing else in this run takes: it is not one of those that the system gives to
    clients, and test processes that run side by side pick from different ones."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    ports = range(15000 + number, 32000, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    while True:
        with contextlib.suppress(OSError), socket.create_server((HOST, random.choice(ports))) as listener:
            return listener.getsockname()[1]


@pytest.fixture
def python():
    """Starts a program in another Python. Whatever is left of it at the end is killed."""
    started = []

    def start(program, *arguments, **options):
        command = [sys.executable, "-u", "-c", program, *map(str, arguments)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(command, text=True, **{**pipes, **options})
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
