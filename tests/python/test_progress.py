"""Workers that make no progress: the report of ``rallypoint run --hang-after`` names the rank that is elsewhere."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

import rallypoint

NODES, WORKERS = 4, 4
WORLD = NODES * WORKERS
ODD = 7

# Every rank beats, and then one waits in another place than the others.
PROGRAM = """
import os, queue, threading, time
import rallypoint

def train_step():
    threading.Event().wait()

def load(items):
    items.put("one")
    items.put("two")

for step in range(3):
    rallypoint.beat(step)
    time.sleep(0.01)
open(os.environ["BEGUN"] + os.environ["RANK"], "w").close()
if os.environ["RANK"] == os.environ["ODD"]:
    load(queue.Queue(1))
train_step()
"""


def lines_of(text, words):
    return [number for number, line in enumerate(text.splitlines(), 1) if words in line]


@pytest.fixture
def launch(tmp_path):
    """Starts a launcher. Whatever is left of it at the end is killed."""
    started = []

    def start(*options, program, **variables):
        log = (tmp_path / f"launcher-{len(started)}.log").open("w+")
        environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
        path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
        command = [sys.executable, "-m", "rallypoint", "run", *map(str, options), str(program)]
        process = subprocess.Popen(command, stderr=log, env={**environment, "PATH": path})
        started.append(process)
        process.log = pathlib.Path(log.name)
        log.close()
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def until(what, look, limit=60):
    begun = time.monotonic()
    while not (found := look()):
        assert time.monotonic() - begun < limit, what
        time.sleep(0.02)
    return found


@pytest.mark.alone
def test_a_job_that_hangs_names_the_rank_that_is_elsewhere(launch, tmp_path, free_port):
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    begun = tmp_path / "begun."
    options = ["--nnodes", NODES, "--nproc-per-node", WORKERS, "--rdzv-id", "job", "--shutdown-timeout", 3]
    options += ["--rdzv-endpoint", f"127.0.0.1:{free_port}", "--hang-after", "2:60"]
    launchers = [launch(*options, program=program, BEGUN=begun, ODD=ODD) for _ in range(NODES)]
    until("all workers", lambda: len(list(tmp_path.glob("begun.*"))) == WORLD, 120)
    silent = time.monotonic()
    odd_line, step_line = lines_of(PROGRAM, 'put("two")')[0], lines_of(PROGRAM, "Event().wait")[0]
    headline = re.compile(
        rf"no progress on \S+ for [\d.]+ s: rank {ODD} on \S+ is in load \(train\.py:{odd_line}\), in "
        rf"(?:Queue\.)?put \(queue\.py:\d+\); {WORLD - 1} ranks on \S+ are in train_step \(train\.py:{step_line}\)"
    )
    reports = until("a report", lambda: [one for one in launchers if headline.search(one.log.read_text())])
    took = time.monotonic() - silent
    print(f"the report came {took:.2f} s after the last beat")
    # The limit, and two seconds on a machine that does nothing else.
    assert 2 <= took < 2 + 10
    text = reports[0].log.read_text()
    assert len(headline.findall(text)) == 1 and len(reports) == 1, text
    assert f"ranks 0-{ODD - 1}, {ODD + 1}-{WORLD - 1} on " in text and "; step 2" in text
    assert f"load ({program}:{odd_line})" in text
    # Workers that wait in Python do not heed a signal; where they are is said before they are killed.
    for one in launchers:
        one.send_signal(signal.SIGTERM)
    for one in launchers:
        one.wait(timeout=60)


def test_workers_that_do_not_stop_say_where_they_are_before_they_are_killed(launch, tmp_path):
    program = tmp_path / "stubborn.py"
    program.write_text(
        "import os, signal, time\n"
        "def save():\n"
        "    while True:\n"
        "        time.sleep(60)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open(os.environ['BEGUN'], 'w').close()\n"
        "save()\n"
    )
    begun = tmp_path / "begun"
    launcher = launch("--shutdown-timeout", 6, program=program, BEGUN=begun)
    until("the worker", begun.exists)
    launcher.send_signal(signal.SIGTERM)
    assert launcher.wait(timeout=60) == 128 + signal.SIGTERM
    text = launcher.log.read_text()
    where = text.index("rank 0 on ")
    assert "save (stubborn.py:4)" in text[where:], text
    assert where < text.index("the workers did not stop in time, and are killed"), text


def test_a_beat_is_a_file_with_the_step(tmp_path, monkeypatch):
    path = tmp_path / "beat"
    monkeypatch.delenv("RALLYPOINT_PROGRESS_FILE", raising=False)
    rallypoint.beat(1)
    monkeypatch.setenv("RALLYPOINT_PROGRESS_FILE", str(path))
    for step in (1200, 7, None):
        rallypoint.beat(step)
        expected = "-" if step is None else str(step)
        assert path.read_text().split() == [expected]
    child = os.fork()
    if child == 0:
        rallypoint.beat(8)
        os._exit(0)
    os.waitpid(child, 0)
    assert path.read_text().split() == ["8"]
    begun = time.perf_counter()
    for step in range(1000):
        rallypoint.beat(step)
    print(f"a beat took {1000 * (time.perf_counter() - begun):.1f} us")
    monkeypatch.setenv("RALLYPOINT_PROGRESS_FILE", str(tmp_path / "none" / "beat"))
    rallypoint.beat(1)


def test_a_beat_under_torchrun_is_a_file_by_the_name_of_the_rank(tmp_path, monkeypatch):
    monkeypatch.delenv("RALLYPOINT_PROGRESS_FILE", raising=False)
    monkeypatch.setenv("RALLYPOINT_PROGRESS_DIR", str(tmp_path))
    monkeypatch.delenv("RANK", raising=False)
    rallypoint.beat(1)
    assert not list(tmp_path.iterdir()), "a process without a rank is no worker"
    monkeypatch.setenv("RANK", "12")
    rallypoint.beat(3)
    assert (tmp_path / "12").read_text().split() == ["3"]
