"""Who is in, under stock torchrun: nodes that come, go, wait, and are late."""

import pathlib
import signal

import pytest
from agents import observing_stock

CALLER = str(pathlib.Path(__file__).with_name("calling_launcher.py"))

WAITS = "Rendezvous'ing worker group"


@pytest.fixture(scope="module")
def spare_of_stock(c10d):
    """Its launcher fails on a spare that was not needed (D3)."""
    with observing_stock(), c10d(nnodes="1") as job:
        job.start("a")
        job.group("a")
        job.start("spare", TORCH_LOGS="+torch.distributed.elastic")
        job.said("spare", "is in redundancy list")
        job.stop_workers()
        assert job.wait() == {"a": 0, "spare": 1}
        assert "AttributeError" in job.output("spare").splitlines()[-1], job.report()


@pytest.mark.usefixtures("spare_of_stock")
def test_a_spare_waits_takes_over_and_ends_well(job):
    job = job(nnodes="2")
    job.start(*"ab")
    first = job.group("ab")
    job.start(*"cd")
    for spare in "cd":
        job.said(spare, "a place to become free")
    assert len(job.events()) == 2
    victim = next(event for event in first if event["rank"] == 1)
    job.kill(victim["agent"])

    def taken_over():
        members = [event for event in job.events(world=2) if event["master"] != victim["master"]]
        return members if len(members) == 2 else None

    again = job.until(taken_over, "a group with a spare")
    assert len({event["agent"] for event in again} & set("cd")) == 1
    job.stop_workers()
    codes = job.wait()
    assert codes.pop(victim["agent"]) == -signal.SIGKILL
    assert set(codes.values()) == {0}, job.report()


def test_a_spare_ends_well_under_a_program_that_calls_the_launcher(jobs):
    """There it must not end the program either."""
    job = jobs(nnodes="1:2", conf="last_call_timeout=60")
    job.start(*"ab", program=[CALLER])
    job.group("ab")
    job.start("spare", program=[CALLER])
    job.said("spare", "a place to become free")
    job.stop_workers()
    assert job.wait() == {"a": 0, "b": 0, "spare": 0}, job.report()
    for name in job.agents:
        assert "and goes on" in job.output(name) and "Error" not in job.output(name), job.report()


def test_nodes_come_and_go(job):
    """Up to two and down to one again, and no restart is consumed."""
    job = job(nnodes="1:2")
    job.start("a")
    job.group("a")
    job.start("b")
    both = job.group("ab")
    before = job.masters()
    job.signal("b", signal.SIGTERM)
    assert job.wait("b") == {"b": 1}
    again = job.group("a", beyond=before)
    assert {event["restarts"] for event in both + again} == {0}
    job.stop_workers()
    assert job.wait("a") == {"a": 0}


SLURM = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NNODES": "2", "SLURM_NTASKS": "2"}


@pytest.mark.parametrize(
    ("others", "variable"), [({}, "PET_NODE_RANK"), (SLURM, "SLURM_NODEID"), ({}, "JOB_COMPLETION_INDEX")]
)
def test_ranks_are_those_that_the_scheduler_gave(jobs, others, variable):
    """Whichever node comes first."""
    job = jobs(nnodes="2")
    job.start_host("b", **others, **{variable: "1"})
    job.said("b", f"node rank 1 from {variable}")
    job.said("b", "waiting: 1 of 2 nodes")
    job.start("a", **others, **{variable: "0"})
    assert {event["agent"]: event["node"] for event in job.group("ab")} == {"a": 0, "b": 1}
    job.stop_workers()
    assert job.wait() == {"a": 0, "b": 0}


def test_a_rank_that_makes_no_sense(jobs):
    job = jobs(nnodes="2")
    job.start("a", JOB_COMPLETION_INDEX="first")
    assert job.wait() == {"a": 1}
    line = job.output("a").splitlines()[-1]
    assert line.startswith("rallypoint.errors.ParameterError: JOB_COMPLETION_INDEX"), line


def test_the_server_is_late(jobs):
    job = jobs(nnodes="2")
    job.start("early", options=["--rdzv-conf", "is_host=false"])
    job.said("early", "no server answers")
    job.start("host")
    job.group(["early", "host"])
    job.stop_workers()
    assert job.wait() == {"early": 0, "host": 0}


@pytest.mark.parametrize("impatient", [False, True])
def test_the_host_of_the_server_is_to_go(jobs, impatient):
    """It serves until the other has ended; a second signal ends it at once, and another of the host takes over."""
    job = jobs(nnodes="1:2")
    job.start_host("host")
    job.start("other")
    job.group(["host", "other"])
    before = job.masters()
    job.signal("host", signal.SIGTERM)
    job.group(["other"], beyond=before)
    job.said("host", "it stays until they end")
    assert job.agents["host"].poll() is None
    if impatient:
        before = job.masters()
        job.signal("host", signal.SIGTERM)
        assert job.wait("host") == {"host": 1}
        job.said("other", "this one serves now")
        job.group(["other"], beyond=before)
    job.stop_workers()
    assert job.wait() == {"host": 1, "other": 0}, job.report()


def interrupted(job):
    """Somebody presses Ctrl-C while an agent waits, and starts two others."""
    job.start("a", LOGLEVEL="INFO")
    job.said("a", WAITS)
    job.signal("a", signal.SIGINT)
    assert job.wait("a") == {"a": -signal.SIGINT}
    job.start(*"bc")
    return job


@pytest.fixture(scope="module")
def interrupted_by_stock(c10d):
    """It closes the job for everybody (D4)."""
    with observing_stock(), c10d(nnodes="2") as job:
        assert interrupted(job).wait("b", "c") == {"b": 1, "c": 1}
        assert "RendezvousClosedError" in job.output("b")


@pytest.mark.usefixtures("interrupted_by_stock")
def test_ctrl_c_while_waiting_leaves_the_job_to_other_nodes(job):
    """If the one that waits serves, another does then."""
    job = interrupted(job(nnodes="2"))
    job.group("bc")
    job.stop_workers()
    assert job.wait("b", "c") == {"b": 0, "c": 0}


def test_ctrl_c_on_the_one_that_serves_while_others_wait(jobs):
    """It stays for them, unless that is not wanted either. Then another serves."""
    job = jobs(nnodes="3")
    job.start_host("a", LOGLEVEL="INFO")
    job.said("a", WAITS)
    job.start("b", LOGLEVEL="INFO")
    job.said("b", WAITS)
    job.signal("a", signal.SIGINT)
    job.said("a", "it stays until they end")
    job.signal("a", signal.SIGINT)
    assert job.wait("a")["a"] != 0
    job.said("b", "this one serves now")
    job.start(*"cd")
    job.group("bcd")
    job.stop_workers()
    assert job.wait("b", "c", "d") == {"b": 0, "c": 0, "d": 0}


def test_groups_grow_and_shrink_by_units(jobs):
    """A third node is a spare, and four nodes are the next group."""
    job = jobs(nnodes="2:4", conf="last_call_timeout=1,lease_ttl=600,node_unit=2")
    job.start_host("a")
    job.start("b")
    job.group("ab")
    job.start("c")
    job.said("c", "the next size is 4")
    assert len(job.masters()) == 1
    job.start("d")
    four = job.group("abcd")
    before = job.masters()
    victim = next(event["agent"] for event in four if event["agent"] != "a" and event["rank"] > 0)
    job.kill(victim)

    def shrunk():
        members = [event for event in job.events(world=2) if event["master"] not in before]
        return members if len(members) == 2 else None

    members = {event["agent"] for event in job.until(shrunk, "a group of two")}
    (spare,) = set("abcd") - members - {victim}
    job.said(spare, "a place to become free")
    job.stop_workers()
    codes = job.wait()
    assert codes.pop(victim) == -signal.SIGKILL
    assert set(codes.values()) == {0}, job.report()


def test_planned_nodes_and_sizes_are_options_of_the_backend(jobs):
    job = jobs(nnodes="1:4", conf="last_call_timeout=600,planned=2,sizes=1/2/4,scale_up_after=600")
    job.start_host("a")
    job.said("a", "1 of 2 planned nodes")
    job.start("b")
    job.group("ab")
    job.stop_workers()
    assert job.wait() == {"a": 0, "b": 0}
    bad = jobs(nnodes="1:4", conf="sizes=1/8")
    bad.start("a")
    assert bad.wait() == {"a": 1}
    line = bad.output("a").splitlines()[-1]
    assert line.startswith('rallypoint.errors.ParameterError: sizes "1/8": 8 is not within 1:4 nodes'), line
