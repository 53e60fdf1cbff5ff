"""Failures in a job under stock torchrun, and their effect on other nodes. Workers only sleep where they can: nothing
breaks by itself, so a worker that stops was told to."""

import pathlib
import time

import pytest
from agents import NO_LEASE, TORCHRUN, observing_stock
from etcds import on_each

DYING = [str(pathlib.Path(__file__).with_name("dying_agent.py"))]

# Nobody has to be quick here; PyTorch's own would take for ever.
SECONDS = 20


def failed_for_good(job):
    job.start(*"ab", options=["--max-restarts", "0"])
    job.group("ab")
    job.fail_worker("a")
    return job


@pytest.fixture(scope="module")
def stock_failed_for_good(c10d):
    """The other workers go on as if nothing had happened."""
    with c10d(nnodes="2") as job:
        with observing_stock():
            assert failed_for_good(job).wait("a") == {"a": 1}
        yield
        with observing_stock():
            assert job.agents["b"].poll() is None


@pytest.mark.usefixtures("stock_failed_for_good")
def test_workers_that_fail_for_good_end_the_job_everywhere(job):
    """With PyTorch's own, it does not."""
    job = failed_for_good(job(nnodes="2"))
    assert job.wait() == {"a": 1, "b": 1}
    last = job.output("b").splitlines()[-1]
    assert last.startswith("rallypoint.errors.RendezvousClosedError: "), job.report()
    assert f'run "{job.run_id}" was closed by ' in last and "failed" in last, job.report()


def killed(job):
    """One agent of three is killed, and not the one that serves. Returns the masters until then."""
    job.start_host("a")
    job.start(*"bc")
    job.group("abc")
    before = job.masters()
    job.kill("c")
    return before


# First of all, since it is looked at much later.
@pytest.fixture(scope="module", autouse=True)
def stock_killed(c10d):
    """The failure is not detected until a collective has timed out (pytorch#111646)."""
    with c10d("last_call_timeout=60", nnodes="2:3") as job:
        with observing_stock():
            killed(job)
        since = time.monotonic()
        yield
        time.sleep(max(0, since + SECONDS - time.monotonic()))
        with observing_stock():
            assert len(job.events()) == 3, "somebody has noticed"


def test_a_worker_that_fails_with_a_peer_does_not_close_the_run(job):
    """When a node dies, the workers of the others often fail too, and by default torchrun gives up then. That is no
    reason for those that are left to do so. The node that dies also serves, if any does."""
    job = job(nnodes="2:3", conf="last_call_timeout=3")
    job.start_host("a")
    job.start("b", options=["--max-restarts", "0"])
    job.start("c")
    job.group("abc")
    before = job.masters()
    job.fail_worker("b", killing=[job.agents["a"].pid])
    job.wait("a")
    job.start("d")
    # As a rule b has ended. It goes on if its agent saw the end of the other before that of its own worker.
    group = job.until(lambda: around("cd", job, before), "a group with those that are left and a new one")
    job.stop_workers()
    codes = job.wait(*{event["agent"] for event in group})
    assert set(codes.values()) == {0}, job.report()


def around(names, job, beyond):
    """The workers of a group that has these agents in it, and a master that is not one of those ``beyond``."""
    groups = {}
    for event in job.events():
        if "world" in event and event["master"] not in beyond:
            groups.setdefault(event["master"], []).append(event)
    whole = [group for group in groups.values() if len(group) == group[0]["world"]]
    return next((group for group in whole if set(names) <= {event["agent"] for event in group}), None)


@pytest.mark.parametrize("first", ["b", "c"])
def test_other_nodes_restart_without_a_node_that_is_done(job, first):
    """It waits in torchrun's exit barrier, which breaks when the store of its group ends. The run is not over with
    that: it is not in the last group."""
    job = job(nnodes="1:3", conf="last_call_timeout=1,rank_policy=hint")
    hinted = ["--rdzv-conf", "last_call_timeout=1,rank_policy=hint,node_rank=0"]
    options = {name: hinted if name == first else () for name in "bc"}
    job.start_host("c", options=options["c"])
    job.start("b", options=options["b"])
    job.start("a", LOGLEVEL="INFO")
    assert [event["agent"] for event in job.group("abc") if event["rank"] == 0] == [first]
    before = job.masters()
    job.stop_workers("a")
    job.said("a", "Local worker group finished")
    job.fail_worker("b")
    job.group("bc", beyond=before)
    assert job.wait("a") == {"a": 0}
    # Who comes to a run that is over is told so.
    job.start("d")
    job.group("bcd")
    job.stop_workers()
    assert job.wait() == dict.fromkeys("abcd", 0), job.report()


RANKS = [("rallypoint", 0), *((etcd, 1) for etcd in on_each("etcd-v3"))]


@pytest.mark.parametrize(("job", "rank"), RANKS, indirect=["job"])
def test_a_peer_that_dies_before_it_has_its_ranks_is_done_without(job, rank):
    """The group has formed, and its agents are about to tell each other how many workers they have."""
    job = job(nnodes="3")
    ranks = {"victim": rank, "a": 1 - rank, "b": 2}
    for name, hint in ranks.items():
        program = DYING if name == "victim" else TORCHRUN
        job.start(name, options=["--rdzv-conf", f"node_rank={hint}"], program=program)
    assert job.wait("victim") == {"victim": 9}
    job.start("c", options=["--rdzv-conf", f"node_rank={rank}"])
    job.group("abc")
    job.stop_workers()
    assert job.wait("a", "b", "c") == {"a": 0, "b": 0, "c": 0}, job.report()


def test_an_agent_that_is_killed_is_missed_at_once(job):
    """With PyTorch's own, it is not."""
    job = job(nnodes="2:3", conf=NO_LEASE)
    before = killed(job)
    job.group("ab", beyond=before)
    job.stop_workers()
    # If a serves, it stays until the lease of the dead one is over.
    assert job.wait("b") == {"b": 0}, job.report()
