"""A worker under torchrun. It forms a group with gloo, writes down what it found, and adds up ones with the others
until a file tells them to stop. What it is to do besides is in its arguments:

    plugin_job.py <directory> <name of its agent> [fail-once | fail]
"""

import json
import os
import pathlib
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

directory, agent, *deeds = sys.argv[1:]
directory = pathlib.Path(directory)


def write_down(**what):
    line = json.dumps({"agent": agent, "pid": os.getpid(), "rank": int(os.environ["RANK"]), **what}) + "\n"
    # One write to the end of a file is not torn.
    with open(directory / "events", "ab", buffering=0) as events:
        events.write(line.encode())


# Nobody who waits for another that is stopped may be saved by this.
dist.init_process_group("gloo", timeout=timedelta(minutes=30))
total = torch.ones(1)
dist.all_reduce(total)
write_down(
    world=dist.get_world_size(),
    total=total.item(),
    node=int(os.environ["GROUP_RANK"]),
    master=f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
    restarts=int(os.environ["TORCHELASTIC_RESTART_COUNT"]),
)
if "fail" in deeds or ("fail-once" in deeds and not (directory / "failed").exists()):
    (directory / "failed").touch()
    sys.exit(7)
while True:
    stop = torch.tensor([float((directory / "stop").exists())])
    dist.all_reduce(stop, dist.ReduceOp.MAX)
    if stop.item():
        break
    time.sleep(0.02)
write_down(done=True)
dist.destroy_process_group()
