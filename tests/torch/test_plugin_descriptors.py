"""Agents under stock torchrun whose soft limit of descriptors is the usual one: each node and each worker is a
connection to the process that serves."""

import contextlib
import resource
import types

import pytest
from wire import Wire

USUAL = 1024
HARD = 8192


def soft_limit(pid):
    return resource.prlimit(pid, resource.RLIMIT_NOFILE)[0]


def limited(hard=HARD):
    return ["prlimit", f"--nofile={min(USUAL, hard)}:{hard}"]


@pytest.mark.parametrize(("most", "raised"), [(2, USUAL), (400, HARD)])
def test_an_agent_raises_its_limit_where_it_might_not_be_enough_and_workers_get_the_old_one(jobs, most, raised):
    job = jobs(nnodes=f"1:{most}", conf="last_call_timeout=0")
    job.start("a", by=limited())
    (worker,) = job.group("a")
    assert soft_limit(job.agents["a"].pid) == raised
    # An agent sets it back when its workers have begun.
    job.until(lambda: soft_limit(worker["pid"]) == USUAL, "the limit of a worker")
    job.stop_workers()
    assert job.wait() == {"a": 0}
    assert "too few descriptors" not in job.output("a")


def test_a_store_serves_two_thousand_connections_where_a_thousand_descriptors_are_the_limit(jobs):
    job = jobs(nnodes="1:400", conf="last_call_timeout=0")
    job.start("a", by=limited())
    (worker,) = job.group("a")
    server = types.SimpleNamespace(port=int(worker["master"].rpartition(":")[2]))
    with contextlib.ExitStack() as stack:
        for _ in range(2048):
            stack.enter_context(Wire(server)).greet()
    job.stop_workers()
    assert job.wait() == {"a": 0}


def test_a_hard_limit_that_is_not_enough_is_said_once(jobs):
    job = jobs(nnodes="1:400", conf="last_call_timeout=0")
    job.start("a", by=limited(hard=512))
    job.group("a")
    job.stop_workers()
    assert job.wait() == {"a": 0}
    assert job.output("a").count("too few descriptors may be open") == 1, job.report()
