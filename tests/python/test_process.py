"""The package and the process it is in: importing, forking, ending, the command."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

import rallypoint

COMMAND = [sys.executable, "-m", "rallypoint"]


def test_importing_imports_little(python):
    """Nothing but itself. How long that takes depends on the machine, and is only printed."""
    program = """
import sys, time
before, start = set(sys.modules), time.perf_counter()
import rallypoint
print(f"import rallypoint took {1000 * (time.perf_counter() - start):.1f} ms", file=sys.stderr)
print(*sorted(set(sys.modules) - before))
"""
    imported, took = python(program).communicate(timeout=60)
    print(took)
    ours = ["rallypoint", "rallypoint._helper", "rallypoint._native", "rallypoint._progress", "rallypoint.errors"]
    assert imported.split() == ours


def test_the_plugin_is_found_without_importing_pytorch(python):
    program = """
import sys
from importlib.metadata import entry_points
found = entry_points()
found = found.select(group="torchrun.handlers") if hasattr(found, "select") else found["torchrun.handlers"]
ours = {one.name: one.load()() for one in found if one.value.startswith("rallypoint.")}
print(sorted(ours), all(map(callable, ours.values())), "torch" in sys.modules, "rallypoint.torch" in sys.modules)
"""
    assert python(program).communicate(timeout=60)[0] == "['etcd-v3', 'rallypoint'] True False False\n"


def test_use_after_a_fork_is_an_error(server, python):
    """Objects, new objects, and the end of the process: nothing hangs, and nothing of the parent's is ended."""
    program = """
import os, sys, rallypoint
etcd = rallypoint.EtcdServer()
etcd.start()
store = rallypoint.EtcdStore(etcd.get_client(), "/fork")
store.set("key", "value")
server = rallypoint.Server()
rendezvous = rallypoint.Rendezvous(server.endpoint, "job", 1, 1, is_host=False)
group = rendezvous.next_rendezvous()
child = os.fork()
if child == 0:
    for use in (lambda: store.get("key"), etcd.get_port, rendezvous.num_nodes_waiting, rallypoint.Server):
        try:
            use()
        except rallypoint.ForkError as error:
            print("refused:", error)
    server.stop()
    etcd.stop()
    del store, etcd, server, group, rendezvous
    sys.exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
print(store.get("key"), rendezvous.num_nodes_waiting(), end=" ")
print(rallypoint.TcpStore(group.master_addr, group.master_port).add("n", 1))
rendezvous.shutdown()
server.stop()
etcd.stop()
"""
    output, errors = python(program).communicate(timeout=60)
    refusals = [line for line in output.splitlines() if line.startswith("refused: rallypoint was in use when")]
    assert len(refusals) == 4 and output.endswith("b'value' 0 1\n"), (output, errors)


def test_a_fork_before_the_first_use_is_none(python):
    program = """
import os, sys, rallypoint
child = os.fork()
with rallypoint.Server() as server:
    store = rallypoint.EtcdStore(rallypoint.Client(server.endpoint), "/x")
    assert store.add("n", 1) == 1
if child == 0:
    sys.exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    process = python(program)
    assert process.communicate(timeout=60)[1] == "" and process.returncode == 0


def test_ctrl_c_ends_every_wait(server, python):
    program = """
import sys, rallypoint
client = rallypoint.Client(sys.argv[1])
store = rallypoint.EtcdStore(client, "/x")
for wait in (lambda: store.get("never"), lambda: store.queue_pop("never"), lambda: store.barrier("never", 2),
             lambda: rallypoint.TcpStore("127.0.0.1", 1), lambda: rallypoint.Rendezvous("127.0.0.1:1", "j", 1, 1,
             is_host=False)):
    try:
        print("waiting")
        wait()
    except KeyboardInterrupt:
        print("ended")
"""
    waiting = python(program, server.endpoint)
    for _ in range(5):
        assert waiting.stdout.readline() == "waiting\n"
        # Long enough for it to wait in earnest; too short would only test less.
        time.sleep(0.2)
        waiting.send_signal(signal.SIGINT)
        assert waiting.stdout.readline() == "ended\n"
    assert waiting.wait(60) == 0


def test_what_the_library_says_is_logged(python):
    program = """
import logging, sys, rallypoint
logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s %(message)s")
with rallypoint.Rendezvous("127.0.0.1:" + sys.argv[1], "job", 1, 1):
    pass
"""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    said = python(program, port).communicate(timeout=60)[1]
    assert f"rallypoint.embedded INFO this process runs the server of the job address=127.0.0.1:{port}" in said


def test_the_last_words_are_not_lost(python, free_port):
    """A record that was taken, and that no handler has yet when the program ends."""
    program = """
import logging, sys, time, rallypoint
logging.basicConfig(format="said: %(message)s")
class Slow(logging.Filter):
    def filter(self, record):
        time.sleep(0.5)
        return True
logging.getLogger("rallypoint.embedded").addFilter(Slow())
logging.getLogger("rallypoint.embedded").setLevel(logging.INFO)
rendezvous = rallypoint.Rendezvous("127.0.0.1:" + sys.argv[1], "job", 1, 1)
time.sleep(0.1)
"""
    assert "said: this process runs the server" in python(program, free_port).communicate(timeout=60)[1]


def test_a_broken_filter_costs_its_own_record_only(python):
    program = """
import logging, rallypoint
logging.basicConfig(level=logging.INFO, format="said: %(message)s")
class Broken(logging.Filter):
    times = 0
    def filter(self, record):
        self.times += 1
        if self.times == 1:
            raise ZeroDivisionError("broken")
        return True
logging.getLogger("rallypoint.trial").addFilter(Broken())
from rallypoint import _native, _log
_native.next_records = lambda: [(20, "rallypoint.trial", "first"), (20, "rallypoint.trial", "second")]
_log._pass_on()
"""
    said = python(program).communicate(timeout=60)[1]
    assert "ZeroDivisionError: broken" in said and "said: second" in said and "said: first" not in said


def test_the_command():
    version = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True)
    assert (version.returncode, version.stdout) == (0, f"rallypoint {rallypoint.__version__}\n")
    assert subprocess.run([*COMMAND, "run", "--nnodes"], capture_output=True).returncode == 2
    script = os.path.join(os.path.dirname(sys.executable), "rallypoint")
    line = [script, "run", "--standalone", "--nproc-per-node", "2", "--", "sh", "-c", "echo rank $RANK; exit 3"]
    job = subprocess.run(line, capture_output=True, text=True)
    # The first of the two to fail may end the other one before it has said a word.
    assert job.returncode == 1 and "rank " in job.stdout, job


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_in_good_order(number):
    served = subprocess.Popen([*COMMAND, "serve", "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)  # fmt: skip
    try:
        line = served.stdout.readline()
        assert re.search(r"127\.0\.0\.1:\d+", line), line
        served.send_signal(number)
        _, said = served.communicate(timeout=60)
        assert served.returncode == 0 and "Traceback" not in said, said
    finally:
        served.kill()
        served.communicate()


@pytest.mark.parametrize("command", [COMMAND, [str(pathlib.Path(sys.executable).with_name("rallypoint"))]])
@pytest.mark.parametrize("options", [["look.py"], ["--module", "look"]])
def test_the_launcher_runs_the_python_that_it_is_installed_in(tmp_path, command, options):
    """And not the first in the path; unless another is named."""
    (tmp_path / "look.py").write_text("import os, sys; print(sys.executable, os.environ.get('PYTHON_EXEC'))")
    (tmp_path / "python3").write_text("#!/bin/sh\necho another")
    (tmp_path / "python3").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment.pop("PYTHON_EXEC", None)

    def said(**more):
        line = [*command, "run", "--standalone", *options]
        return subprocess.run(
            line, cwd=tmp_path, env={**environment, **more}, timeout=60, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    assert said() == f"{sys.executable} None\n"
    assert said(PYTHON_EXEC="python3") == "another\n"
