"""The guard of a Python process: workers that others start end with it, or at its fence."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

AGENT = """
import os, subprocess, sys, time
from rallypoint._guard import MARK, WorkerGuard
guard = WorkerGuard("127.0.0.1:1", None)
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"], start_new_session=True)
other = subprocess.Popen(["env", "-u", MARK, "sleep", "100"], start_new_session=True)
host, port = guard.guard.address
print(worker.pid, other.pid, host, port, guard.guard.token, "torch" in sys.modules, flush=True)
for line in sys.stdin:
    what, seconds = line.split()
    if what == "fence":
        guard.guard.fence_at(time.clock_gettime_ns(time.CLOCK_BOOTTIME) + int(float(seconds) * 1e9))
    else:
        guard.close()
    print("done", flush=True)
"""


def lives(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition, what, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.005)


class Agent:
    def __init__(self, python):
        self.process = python(AGENT)
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        worker, other, host, port, self.token, torch = line.split()
        self.worker, self.other = int(worker), int(other)
        self.address = (host, int(port))
        assert torch == "False"

    def tell(self, what, seconds=0):
        self.process.stdin.write(f"{what} {seconds}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def greeting(self):
        with socket.create_connection(self.address) as connection, connection.makefile() as file:
            return file.readline()

    def is_refused(self):
        try:
            socket.create_connection(self.address).close()
        except ConnectionRefusedError:
            return True
        return False


@pytest.fixture
def agent(python):
    agent = Agent(python)
    yield agent
    for pid in (agent.worker, agent.other):
        if lives(pid):
            os.kill(pid, signal.SIGKILL)


def test_killed_it_leaves_no_worker_and_then_its_socket_is_refused(agent):
    assert agent.greeting() == f"rallypoint-guard {agent.token}\n"
    agent.process.kill()
    until(agent.is_refused, "its socket is refused")
    assert not lives(agent.worker)
    assert lives(agent.other)


def test_standing_still_it_has_no_workers_after_its_fence(agent):
    agent.tell("fence", 0.5)
    agent.process.send_signal(signal.SIGSTOP)
    time.sleep(0.2)
    assert lives(agent.worker)
    until(lambda: not lives(agent.worker), "the worker is killed")
    assert lives(agent.other)
    assert not agent.is_refused()


def test_what_workers_leave_after_their_end_is_theirs(agent):
    agent.tell("close")
    until(agent.is_refused, "its socket is refused")
    agent.process.kill()
    agent.process.wait()
    time.sleep(0.3)
    assert lives(agent.worker)


def test_the_helper_needs_neither_the_package_nor_the_environment(tmp_path):
    import rallypoint
    from rallypoint import _helper, _native

    (tmp_path / "rallypoint.py").write_text("raise SystemExit('not this one')")
    command = [sys.executable, "-I", "-S", _helper.__file__, _native.__file__, "__gate", "echo", "x"]
    # Nobody lets it through.
    done = subprocess.run(command, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b""), rallypoint.VERSION
