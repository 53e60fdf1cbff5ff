"""A node that was cut off for longer than its lease under stock torchrun: others may have its place by then, so its
workers must go, whether they like it or not. Those here, and their helpers, end only if they are killed."""

import signal
import subprocess
import sys

import pytest
from agents import Job, lives
from real_etcd import Etcd

LEASE = 2

# What comes first depends on who wakes first: the agent, which finds its lease gone, or its guard.
FENCED = ("fenced: the workers of this node must stop", "the guard has killed the workers")

# They have an eighth of the lease, at most 2 s here. stock torchrun would give them 30 s.
SOON = 8


class Doomed:
    """The workers that an agent has now, and is to lose."""

    def __init__(self, job, name):
        worker = job.events(agent=name)[-1]
        self.job, self.name = job, name
        self.pids = [worker["pid"], worker["helper"]]
        self.losses = self._losses()

    def are_gone(self):
        """Waits until the agent says that they must go, and then until they are gone, with their helpers."""
        self.job.until(lambda: self._losses() > self.losses, f"the loss of {self.name}'s place")
        what = f"the end of {self.name}'s workers soon after that"
        self.job.until(lambda: not any(map(lives, self.pids)), what, seconds=SOON)

    def _losses(self):
        return sum(map(self.job.output(self.name).count, FENCED))


def test_an_agent_that_slept_through_its_lease_kills_its_workers(job):
    job = job(nnodes="1:2", conf=f"last_call_timeout=1,lease_ttl={LEASE}")
    job.start_host("a")
    job.start("b", deeds=["stubborn"])
    job.group("ab")
    before = job.masters()
    doomed = Doomed(job, "b")
    job.signal("b", signal.SIGSTOP)
    job.group("a", beyond=before)
    job.signal("b", signal.SIGCONT)
    doomed.are_gone()
    again = job.group("ab", beyond=before)
    assert [event["predecessors"] for event in again if event["agent"] == "b"] == [[]]
    job.stop_workers()
    assert job.wait() == {"a": 0, "b": 0}, job.report()


@pytest.mark.usefixtures("each_etcd")
@pytest.mark.parametrize(("how", "lease"), [("pause", 16), ("stop", LEASE)])
def test_an_agent_that_is_cut_off_kills_its_workers(tmp_path, how, lease):
    conf = f"last_call_timeout=1,lease_ttl={lease}"
    with Etcd(tmp_path / "data") as etcd, Job(tmp_path / "job", "etcd-v3", etcd.endpoint, conf=conf) as job:
        job.start("a", deeds=["stubborn"])
        job.group("a")
        before = job.masters()
        doomed = Doomed(job, "a")
        getattr(etcd, how)()
        doomed.are_gone()
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
fence = Fence(types.SimpleNamespace(fenced=losses.get, is_fenced=False, lease_ttl=timedelta(seconds=16)), list)
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


# Workers that do not look like any, since they have no session of their own: one that the agent knows by its number,
# and one that it knows by something else.
OTHERWISE = """
import logging, queue, subprocess, types
from datetime import timedelta
from rallypoint._fence import Fence

logging.basicConfig(format="%(message)s")
losses = queue.Queue()
workers = []
ways = types.SimpleNamespace(fenced=losses.get, is_fenced=False, lease_ttl=timedelta(seconds=16))
fence = Fence(ways, lambda: [workers[0].pid, "b"])
fence.watch()
workers += [subprocess.Popen(["sleep", "60"]) for _ in "ab"]
losses.put("the group is lost")
print(workers[0].wait(), flush=True)
workers[1].kill()
"""


def test_workers_that_are_started_in_another_way():
    """Those that the agent knows end too, and those that it does not are missed."""
    said = subprocess.run([sys.executable, "-c", OTHERWISE], capture_output=True, text=True)
    assert said.stdout == f"{-signal.SIGKILL}\n", said.stderr
    assert "found 1 of the 2 workers of this node, which must end" in said.stderr, said
