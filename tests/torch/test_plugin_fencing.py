"""A node that was cut off for longer than its lease under stock torchrun: others may have its place by then, so its
workers must go, whether they like it or not. Those here, and their helpers, end only if they are killed."""

import signal
import subprocess
import sys

import pytest
from agents import Job, lives
from real_etcd import Etcd

LEASE = 2

# stock torchrun gives workers 30 s to end when it is told to start them again. That would be too late.
SOON = LEASE + 18


def are_gone(job, name):
    """Waits until no worker of this agent is left, and no helper of one."""
    (worker,) = job.events(agent=name)
    pids = [worker["pid"], worker["helper"]]
    job.until(lambda: not any(map(lives, pids)), f"the end of {name}'s workers", seconds=SOON)


def test_an_agent_that_slept_through_its_lease_kills_its_workers(job):
    job = job(nnodes="1:2", conf=f"last_call_timeout=1,lease_ttl={LEASE}")
    job.start_host("a")
    job.start("b", deeds=["stubborn"])
    job.group("ab")
    before = job.masters()
    job.signal("b", signal.SIGSTOP)
    job.group("a", beyond=before)
    job.signal("b", signal.SIGCONT)
    are_gone(job, "b")
    again = job.group("ab", beyond=before)
    assert [event["predecessors"] for event in again if event["agent"] == "b"] == [[]]
    job.stop_workers()
    assert job.wait() == {"a": 0, "b": 0}, job.report()


@pytest.mark.parametrize("how", ["pause", "stop"])
def test_an_agent_that_is_cut_off_kills_its_workers(tmp_path, how):
    conf = f"last_call_timeout=1,lease_ttl={LEASE}"
    with Etcd(tmp_path / "data") as etcd, Job(tmp_path / "job", "etcd-v3", etcd.endpoint, conf=conf) as job:
        job.start("a", deeds=["stubborn"])
        job.group("a")
        before = job.masters()
        getattr(etcd, how)()
        are_gone(job, "a")
        etcd.resume() if how == "pause" else etcd.start()
        again = job.group("a", beyond=before)
        assert again[0]["predecessors"] == []
        job.stop_workers()
        assert job.wait() == {"a": 0}, job.report()


# In a process of its own, since it kills what that has started.
TWICE = """
import queue, subprocess, types
from datetime import timedelta
from rallypoint._fence import Fence

losses = queue.Queue()
fence = Fence(types.SimpleNamespace(fenced=losses.get, is_fenced=False, lease_ttl=timedelta(seconds=16)))
fence.watch()
losses.put("the first group is lost")
while not losses.empty():
    pass
fence.watch()
worker = subprocess.Popen(["sleep", "15"], start_new_session=True)
losses.put("the second group is lost")
print(worker.wait())
"""


def test_each_group_is_watched_over():
    """The next group may be there before the workers of the lost one are gone."""
    said = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True)
    assert said.stdout == f"{-signal.SIGKILL}\n", said.stderr
