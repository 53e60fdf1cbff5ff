"""Workers that make no progress under `rallypoint run`: the report names the rank that is elsewhere, and where."""

import pathlib
import re
import time

import pytest
from launchers import Job, Ours

JOB = pathlib.Path(__file__).with_name("hanging_job.py")
ODD = 7
AFTER = 4


def line_of(words):
    """The only line of the job's program with these words."""
    (line,) = (number for number, line in enumerate(JOB.read_text().splitlines(), 1) if words in line)
    return line


def until(what, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.02)
    return what()


def hang(job, tmp_path, nodes, workers, *options, **environment):
    """Lets the workers hang. Returns when the last has beaten, when the report was there, and the report."""
    begin = tmp_path / "begin"
    progress = ["--nproc-per-node", workers, "--hang-after", f"{AFTER}:60", "--progress", "beat"]
    for _ in range(nodes):
        job.start(*progress, JOB, ODD, begin, *options, **environment)
    world = nodes * workers
    assert until(lambda: len(re.findall(r"ready \d+", job.said())) == world), job.said()
    begin.touch()
    hung = r"hung \d+ at ([\d.]+)"
    assert until(lambda: len(re.findall(hung, job.said())) == world), job.said()
    beaten = max(map(float, re.findall(hung, job.said())))
    (name,) = until(lambda: [one for one in job.launchers if "no progress on" in one.said()]) or [None]
    found = time.monotonic()
    # All of it.
    until(lambda: f"stack of rank {ODD}" in name.said(), 5)
    said = name.said()
    return beaten, found, said[said.index("no progress on") :]


@pytest.mark.alone
@pytest.mark.parametrize("options", [[], ["--debug-server"]], ids=["py-spy", "debug server"])
def test_the_odd_rank_is_named_with_file_and_line(tmp_path, record_property, options):
    """Where the workers serve their stacks by PyTorch's debug server, no tool is needed."""
    nodes, workers = (2, 4) if options else (4, 4)
    tools = {"PYSPY_BIN": "/bin/false"} if options else {}
    world = nodes * workers
    with Job(Ours(), tmp_path, nodes=nodes) as job:
        beaten, found, report = hang(job, tmp_path, nodes, workers, *options, **tools)
        late = found - beaten - AFTER
        record_property("late", late)
        headline, *rest = report.splitlines()
        load, step = line_of('items.put("two")'), line_of("threading.Event().wait()")
        # The debug server tells functions without their classes.
        odd = rf"rank {ODD} on \S+ is in load \({JOB.name}:{load}\), in (Queue\.)?put \(queue\.py:"
        assert re.search(odd, headline), headline
        assert f"{world - 1} ranks " in headline and f"are in train_step ({JOB.name}:{step})" in headline, headline
        assert re.search(rf"rank {ODD} on \S+: load .*; step 1", "\n".join(rest)), report
        # A report before the time of --hang-after is wrong, too.
        assert -0.5 < late < 2, f"{late:.2f} s late\n{report}"
        # Nothing happens to the job, and the hang is reported once.
        time.sleep(AFTER)
        assert job.said().count("no progress on") == 1, job.said()
        assert len(job.workers()) == world
