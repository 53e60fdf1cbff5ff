"""JAX under a real `srun`, whose variables describe the launchers and not their workers."""

import os
import signal

from conftest import JOB, group, is_alive
from jobs import Job


def test_under_srun_the_ranks_are_those_of_the_workers(cluster, tmp_path):
    run = "srun --ntasks-per-node 1 rallypoint run --nproc-per-node 2 --max-restarts 3 --ports 1"
    job = Job(cluster, tmp_path, f"{run} {JOB}", options=["--nodes=2"])
    first = group(tmp_path, 4, failed=job.over)
    assert [one["host"] for one in first] == ["node0", "node0", "node1", "node1"]
    os.kill(first[2]["pid"], signal.SIGKILL)
    second = group(tmp_path, 4, after=first, failed=job.over)
    assert not any(is_alive(one) for one in first)
    assert {one["restarts"] for one in second} == {1}
    (tmp_path / "go").touch()
    job.ends()
