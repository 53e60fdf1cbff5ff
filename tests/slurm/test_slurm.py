"""`rallypoint run` under a real Slurm. docs/guides/slurm.md says what is seen here."""

import re
import time

from hosts import ROOT, until
from jobs import STILL, is_alive, state

RUN = "srun --ntasks-per-node 1 rallypoint run --max-restarts 3"


EXAMPLES = ROOT / "examples" / "slurm"
# As the examples ask for it, only less.
GPUS = ["--nodes=3", "--gres=gpu:2"]


def test_the_line_of_the_guide(submit):
    guide = ROOT / "docs" / "guides" / "slurm.md"
    lines = re.findall(r"^\$ (srun .*)$", guide.read_text(), re.MULTILINE)
    assert len(lines) == 1 and lines[0] in (EXAMPLES / "train.sh").read_text()
    job = submit(script=EXAMPLES / "train.sh", options=GPUS)
    group = job.group(6)
    assert [worker["host"] for worker in group] == ["node0", "node0", "node1", "node1", "node2", "node2"]
    assert {worker["TORCHELASTIC_RUN_ID"] for worker in group} == {f"slurm-{job.number}.0"}
    assert all(worker["arguments"] == ["--epochs", "10"] for worker in group)
    assert len({(worker["MASTER_ADDR"], worker["MASTER_PORT"]) for worker in group}) == 1
    job.tell()
    job.ends()


def test_two_steps_of_a_job_at_once_have_nothing_to_do_with_each_other(submit):
    step = "srun --exact --nodes 3 --ntasks-per-node 1 rallypoint run train.py"
    job = submit(f"({step}; touch over-$?-0) &", "until ls seen-0-* >/dev/null 2>&1; do sleep 0.05; done",
                 f"({step}; touch over-$?-1) &", "wait", options=["--nodes=3", "--exclusive"])  # fmt: skip
    groups = [job.group(3, step) for step in (0, 1)]
    for step, group in enumerate(groups):
        assert {worker["TORCHELASTIC_RUN_ID"] for worker in group} == {f"slurm-{job.number}.{step}"}
    # The first ends whole while the second goes on, though both began on the same node.
    job.tell(0)
    until("the first step is over", (job.directory / "over-0-0").exists, job.over)
    assert all(is_alive(worker) for worker in groups[1])
    job.tell(1)
    job.ends()
    assert (job.directory / "over-0-1").exists(), job.output()
    assert len(job.workers(0)) == len(job.workers(1)) == 3, "no worker was started twice"


def test_scancel_ends_the_workers_by_sigterm(submit, cluster):
    job = submit(f"{RUN} train.py")
    job.group(3)
    cluster.command("scancel", job.number)
    job.ends("CANCELLED")
    assert job.heard("SIGTERM") == [0, 1, 2], job.output()


def test_scancel_with_usr1_is_passed_on_and_ends_nothing_else(submit, cluster):
    job = submit(f"{RUN} train.py")
    job.group(3)
    cluster.command("scancel", "--signal=USR1", job.number)
    job.ends()
    assert job.heard("SIGUSR1") == [0, 1, 2], job.output()
    assert job.heard("SIGTERM") == []


def test_a_requeued_job_is_another_run_of_the_same_script(submit):
    job = submit(f"{RUN} train.py", options=["--nodes=3", "--requeue"])
    first = job.group(3)
    job.scontrol("requeue")
    second = job.group(3, after=first)
    assert {worker["TORCHELASTIC_RUN_ID"] for worker in second} == {f"slurm-{job.number}.0-1"}
    assert not any(is_alive(worker) for worker in first)
    job.tell()
    job.ends()


def test_a_job_that_is_out_of_time_saves_and_is_queued_again(submit, cluster, monkeypatch):
    monkeypatch.setitem(cluster.environment, "NOTICE", "1")
    job = submit(script=EXAMPLES / "requeue.sh", options=GPUS)
    (job.directory / "stay").touch()
    first = job.group(6)
    # As `--signal=B:USR1@180` does when the time comes.
    cluster.command("scancel", "--batch", "--signal=USR1", job.number)
    second = job.group(6, after=first)
    assert job.heard("SIGUSR1") == job.heard("SIGTERM") == list(range(6)), job.output()
    assert {worker["TORCHELASTIC_RUN_ID"] for worker in second} == {f"slurm-{job.number}.0-1"}
    job.tell()
    job.ends()


def test_with_no_kill_a_job_outlives_a_node(submit, cluster):
    job = submit("srun --no-kill --ntasks-per-node 1 rallypoint run --nnodes 2:3 --max-restarts 0 train.py",
                 options=["--nodes=3", "--no-kill"])  # fmt: skip
    first = job.group(3)
    # Without its slurmd a node is down for Slurm, and no other node is affected.
    cluster.end_slurmd("node2")
    until("Slurm takes the node for down", lambda: cluster.states()["node2"].startswith("down"), job.over)
    assert all(is_alive(worker) for worker in first) and len(job.workers()) == 3
    # When all of the node is gone, the other nodes go on without it.
    cluster.network.hosts["node2"].kill()
    second = job.group(2, after=first)
    assert [worker["host"] for worker in second] == ["node0", "node1"]
    job.tell()
    about = until("the job is over", lambda: job.over() and job.about())
    assert about["JobState"] == "COMPLETED", job.output()


def test_a_suspended_job_goes_on_when_it_is_resumed(submit):
    job = submit(f"{RUN} --max-restarts 0 --rdzv-conf lease_ttl=3 train.py")
    first = job.group(3)
    job.scontrol("suspend")
    until("the workers stand still", lambda: all(state(worker) in STILL for worker in first))
    # Longer than a lease, so that every node has lost its place by the clock.
    time.sleep(6)
    job.scontrol("resume")
    until("all three run again", lambda: job.runs(3), job.over)
    job.tell()
    job.ends()


def test_a_job_that_is_suspended_for_less_than_a_lease_notices_nothing(submit):
    job = submit(f"{RUN} --max-restarts 0 --rdzv-conf lease_ttl=30 train.py")
    first = job.group(3)
    job.scontrol("suspend")
    until("the workers stand still", lambda: all(state(worker) in STILL for worker in first))
    job.scontrol("resume")
    until("all three run again", lambda: job.runs(3), job.over)
    job.tell()
    job.ends()
    assert len(job.workers()) == 3, job.output()
