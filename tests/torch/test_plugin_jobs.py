"""Jobs under stock torchrun with our backends: as with PyTorch's own, but for what those do wrong."""

import subprocess
import sys
import time

import pytest
from agents import NO_LEASE, observing_stock
from etcds import on_each


def trained(job):
    """What comes of four agents."""
    job.start(*"abcd", deeds=["train"])
    group = job.group("abcd")
    job.stop_workers()
    codes = job.wait()
    return {
        "codes": codes,
        "ranks": sorted(event["rank"] for event in group),
        "nodes": sorted(event["node"] for event in group),
        "totals": {event["total"] for event in group},
        "restarts": {event["restarts"] for event in group},
        "done": len(job.events(done=True)),
    }


@pytest.fixture(scope="module")
def trained_by_stock(c10d):
    with c10d(nnodes="4") as job:
        return trained(job)


def test_four_agents_train_as_with_pytorchs_own(job, trained_by_stock):
    assert trained_by_stock["codes"] == dict.fromkeys("abcd", 0)
    assert trained(job(nnodes="4")) == trained_by_stock


def restarted(job, *deeds):
    """A worker fails, and all start again. Returns how often workers had begun with their store, each time."""
    job.start(*"ab", deeds=["count", *deeds])
    job.until(lambda: len(job.events(world=2)) == 2, "a group")
    job.fail_worker("a")
    job.until(lambda: len(job.events(world=2)) == 4, "another group")
    events = job.events(world=2)
    job.stop_workers()
    return {
        "codes": job.wait(),
        "restarts": [[event["restarts"] for event in events if event["agent"] == name] for name in "ab"],
        "starts": [sorted(event["starts"] for event in events[:2]), sorted(event["starts"] for event in events[2:])],
    }


RESTARTED = {"codes": {"a": 0, "b": 0}, "restarts": [[0, 1], [0, 0]]}


@pytest.fixture(scope="module")
def restarted_by_stock(c10d):
    """It hands the store of the dead, with their addresses in it, to the new workers (D1)."""
    with observing_stock(), c10d(nnodes="2") as job:
        assert restarted(job) == {**RESTARTED, "starts": [[1, 2], [3, 4]]}


@pytest.mark.usefixtures("restarted_by_stock")
def test_a_worker_fails_and_all_start_again(job):
    """As with PyTorch's own, but for the store."""
    assert restarted(job(nnodes="2"), "train") == {**RESTARTED, "starts": [[1, 2], [1, 2]]}


def without_rank_0(job, *deeds):
    """The agent of rank 0 is killed, which serves, if any does, as it came first. Returns where it was to be found,
    the masters until then, and the other agents."""
    job.start_host("a", deeds=deeds)
    job.start(*"bc", deeds=deeds)
    victim = next(event for event in job.group("abc") if event["rank"] == 0)
    before = job.masters()
    job.kill(victim["agent"])
    return victim["master"], before, set("abc") - {victim["agent"]}


@pytest.fixture(scope="module")
def masters_by_stock(c10d):
    """One of the survivors of rank 0 is told of the dead one (D2)."""
    conf = "last_call_timeout=10,keep_alive_interval=1,keep_alive_max_attempt=5"
    with observing_stock(), c10d(conf, nnodes="2:3") as job:
        dead, _, rest = without_rank_0(job)
        # It does not see by itself that somebody is gone, so a worker that fails makes the agents look. It must
        # not do so before the dead one counts as dead.
        time.sleep(7)
        job.fail_worker(min(rest))
        job.until(lambda: len(job.events(world=2)) == 2, "a group of the other nodes")
        masters = {event["master"] for event in job.events(world=2)}
        assert len(masters) == 2 and dead in masters


# Where rank 0's agent serves, another takes over. It does not know the leases of the others, who learn that when they
# next renew them: each quarter of a lease, so that is a short one there.
CONFS = [("rallypoint", ""), *((etcd, NO_LEASE) for etcd in on_each("etcd-v3"))]


@pytest.mark.usefixtures("masters_by_stock")
@pytest.mark.parametrize(("job", "conf"), CONFS, indirect=["job"])
def test_rank_0_is_killed_and_the_others_are_told_of_the_new_one(job, conf):
    job = job(nnodes="2:3", conf=conf)
    _, before, rest = without_rank_0(job, "train")
    again = job.group(rest, beyond=before)
    assert sorted(event["rank"] for event in again) == [0, 1]
    job.stop_workers()
    assert set(job.wait(*rest).values()) == {0}, job.report()


def test_a_worker_serves_the_store_if_that_is_wanted(jobs):
    """The agents then meet in a store of the rendezvous, and rank 0's worker serves that of the workers."""
    job = jobs(nnodes="2", conf="use_agent_store=false")
    job.start(*"ab", deeds=["train"])
    assert [event["total"] for event in job.group("ab")] == [2, 2]
    job.stop_workers()
    assert job.wait() == {"a": 0, "b": 0}


def test_the_entry_points_are_found():
    program = """
from torch.distributed.elastic.rendezvous import rendezvous_handler_registry as registry
print(sorted(registry._registry))
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert said.stdout == "['c10d', 'etcd', 'etcd-v2', 'etcd-v3', 'rallypoint', 'static']\n", said.stderr
