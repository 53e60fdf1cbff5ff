"""A worker that meets the others over the store that its environment names, and says what it made of it."""

import json
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([2 ** dist.get_rank()])
dist.all_reduce(total)
if os.environ["LOCAL_RANK"] == "0":
    elastic = dist.is_torchelastic_launched()
    print("seen", json.dumps([elastic, dist.get_rank(), dist.get_world_size(), total.item()]), flush=True)
dist.destroy_process_group()
