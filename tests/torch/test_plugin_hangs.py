"""Workers that make no progress under stock torchrun: the report names the rank that is elsewhere."""

import re
import time

import pytest
from agents import WORKER

NODES, WORKERS = 4, 4
WORLD = NODES * WORKERS
ODD = 7
AFTER = 4


def line_of(words):
    """The only line of the worker's program with these words."""
    (line,) = (number for number, line in enumerate(WORKER.read_text().splitlines(), 1) if words in line)
    return line


def hang(job, ready, odd=ODD):
    """Lets the workers hang, and returns when the last of them has beaten."""
    (job.directory / "hang-not-yet").write_text(str(odd))
    (job.directory / "hang-not-yet").rename(job.directory / "hang")
    hung = job.until(lambda: len(job.events()) == 2 * ready and job.events()[ready:], "workers that hang")
    return max(event["beaten"] for event in hung)


def report_of(job, name, words="no progress on"):
    job.said(name, words)
    found, output = time.monotonic(), job.output(name)
    return found, output[output.index(words) :]


@pytest.mark.alone
def test_the_odd_rank_of_sixteen_is_named_with_file_and_line(jobs, record_property):
    job = jobs(nnodes=str(NODES), nproc=WORKERS, conf=f"last_call_timeout=1,hang_after={AFTER}")
    job.start_host("a", deeds=["hang"])
    job.start(*"bcd", deeds=["hang"])
    members = job.group("abcd", size=WORLD)
    (first,) = {event["agent"] for event in members if event["node"] == 0}
    beaten = hang(job, WORLD)
    found, report = report_of(job, first)
    late = found - beaten - AFTER
    record_property("late", late)
    headline, *rest = report.splitlines()
    load, step = line_of('items.put("two")'), line_of("threading.Event().wait()")
    assert f"rank {ODD} on " in headline and f"is in load ({WORKER.name}:{load}), in Queue.put (queue.py:" in headline
    assert f"{WORLD - 1} ranks " in headline and f"are in train_step ({WORKER.name}:{step})" in headline, headline
    assert re.search(rf"rank {ODD} on \S+: load .*; step \d+", "\n".join(rest)), report
    # A report before the time of hang_after is wrong, too.
    assert -0.5 < late < 2, f"{late:.2f} s late\n{report}"
    # The node to blame comes next, with the command that lets the job go on without it.
    job.said(first, "lets the job go on without it")
    lines = job.output(first).splitlines()
    (blame,) = (line for line in lines if "the odd node is " in line)
    (evict,) = (line for line in lines if "lets the job go on without it" in line)
    assert f"{WORLD - 1} of {WORLD} ranks are in train_step" in blame, blame
    (odd,) = {event["agent"] for event in members if event["rank"] == ODD}
    assert re.search(rf"`rallypoint evict {job.run_id} \S+-{job.agents[odd].pid}-\w+`", evict), evict
    assert "--on-hang" not in blame + evict, "torchrun has no such option"
    # Nothing happens to the workers, and the hang is reported once.
    time.sleep(AFTER)
    assert sum(job.output(name).count("no progress on") for name in job.agents) == 1, job.report()
    assert len(job.events()) == 2 * WORLD


def test_a_node_whose_workers_have_ended_does_not_hang(jobs):
    """It is in torchrun's exit barrier, with workers that show nothing any more."""
    job = jobs(nnodes="2", conf="last_call_timeout=1,hang_after=1,progress=beat")
    job.start(*"ab")
    job.group("ab")
    job.stop_workers("a")
    job.until(lambda: len(job.events(done=True)) == 1, "the end of a worker")
    before = {name: job.output(name).count("no worker of this node") for name in "ab"}
    time.sleep(4)
    # The other has never beaten.
    assert "no worker of this node makes progress" in job.output("b"), job.report()
    assert job.output("a").count("no worker of this node") == before["a"], job.report()
    job.stop_workers()
    assert job.wait() == {"a": 0, "b": 0}, job.report()


def test_output_in_files_is_a_sign_of_progress(jobs):
    """Without them it is not expected, and that is said."""
    job = jobs(nnodes="1", conf="last_call_timeout=1,hang_after=0.5:0.5")
    job.start("a", LOGLEVEL="INFO")
    job.group("a")
    job.said("a", "once a worker of a node has called rallypoint.beat()")
    time.sleep(1.5)
    assert "no progress" not in job.output("a"), job.report()
    job.stop_workers()
    assert job.wait() == {"a": 0}, job.report()
    seen = jobs(nnodes="1", conf="last_call_timeout=1,hang_after=0.5:0.5")
    seen.start("a", options=["--redirects", "3", "--log-dir", str(seen.directory / "logs")])
    seen.group("a")
    seen.said("a", "no progress on")
    seen.stop_workers()
    assert seen.wait() == {"a": 0}, seen.report()


def test_a_wrong_limit_is_refused(jobs):
    job = jobs(conf="hang_after=soon")
    job.start("a")
    assert job.wait() == {"a": 1}
    line = job.output("a").splitlines()[-1]
    assert line.startswith('rallypoint.errors.ParameterError: hang_after "soon": give seconds'), line
