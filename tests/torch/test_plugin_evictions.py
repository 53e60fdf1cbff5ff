"""An operator evicts nodes of stock torchrun: they stop their workers and leave, and the job goes on."""

import subprocess
import sys

import pytest
from agents import lives


def operate(job, *arguments):
    """Runs the command of an operator on the server of a job."""
    command = [sys.executable, "-m", "rallypoint", *arguments, "--rdzv-endpoint", job.endpoint]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def evict(job, name, reason="its disk is full"):
    """Evicts the node of an agent."""
    pid = job.agents[name].pid
    listed = operate(job, "status", job.run_id).stdout
    (node,) = {word for word in listed.split() if f"-{pid}-" in word}
    return operate(job, "evict", job.run_id, node, "--yes", "--reason", reason)


@pytest.fixture
def elastic(jobs):
    """A job of two nodes, and which of them does not serve."""
    job = jobs(nnodes="1:2")
    job.start_host("host")
    job.start("other")
    return job, job.group(["host", "other"])


def test_an_evicted_node_stops_its_workers_and_leaves(elastic):
    job, members = elastic
    worker = next(event["pid"] for event in members if event["agent"] == "other")
    before = job.masters()
    done = evict(job, "other")
    assert done.returncode == 0, done.stderr + job.report()
    assert "has left run" in done.stdout
    assert not lives(worker), "it leaves when its workers have stopped"
    assert job.wait("other") == {"other": 0}, job.report()
    output = job.output("other")
    assert "was evicted by" in output and "its disk is full" in output, output
    assert "Traceback" not in output, output
    again = job.group(["host"], beyond=before)
    assert again[0]["restarts"] == 0, "no restart is consumed"
    job.said("host", "evicted by")
    job.stop_workers()
    assert job.wait("host") == {"host": 0}, job.report()


def test_an_evicted_host_serves_until_the_others_have_ended(elastic):
    job, _ = elastic
    before = job.masters()
    assert evict(job, "host").returncode == 0, job.report()
    job.group(["other"], beyond=before)
    assert job.agents["host"].poll() is None, job.report()
    job.stop_workers()
    assert job.wait() == {"host": 0, "other": 0}, job.report()


def test_a_node_that_waits_is_evicted_at_once(jobs):
    job = jobs(nnodes="3")
    job.start_host("host")
    job.start("other")
    job.said("other", "waiting:")
    assert evict(job, "other").returncode == 0, job.report()
    assert job.wait("other") == {"other": 0}, job.report()
    assert job.agents["host"].poll() is None, job.report()
