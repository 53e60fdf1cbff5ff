"""One rank of a job as a training script would have it: started with torchrun's environment, with a store at
MASTER_ADDR and MASTER_PORT that its agent holds. It forms a group on each of the ports given, one after the
other, and prints what it computed on each as a line of JSON."""

import json
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

PATIENCE = timedelta(seconds=120)


def compute(rank, world_size):
    total = torch.tensor([float(rank + 1)])
    dist.all_reduce(total)
    dist.barrier()

    evens = dist.new_group(list(range(0, world_size, 2)), timeout=PATIENCE)
    of_evens = torch.tensor([float(rank)])
    if rank % 2 == 0:
        dist.all_reduce(of_evens, group=evens)

    gathered = [None] * world_size
    dist.all_gather_object(gathered, {"rank": rank})

    broadcast = ["from 0", {"deep": [1, 2]}] if rank == 0 else [None, None]
    dist.broadcast_object_list(broadcast, src=0)

    dist.monitored_barrier(timeout=PATIENCE)
    return {
        "all_reduce": total.item(),
        "new_group": of_evens.item(),
        "all_gather_object": [one["rank"] for one in gathered],
        "broadcast_object_list": broadcast,
    }


def main():
    for port in sys.argv[1:]:
        os.environ["MASTER_PORT"] = port
        dist.init_process_group("gloo", timeout=PATIENCE)
        print(json.dumps(compute(dist.get_rank(), dist.get_world_size())), flush=True)
        dist.destroy_process_group()


main()
