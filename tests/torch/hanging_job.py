"""Workers that beat, and then hang: the odd rank in `load`, the others in `train_step`."""

import os
import queue
import sys
import threading
import time

import rallypoint

odd, begin = int(sys.argv[1]), sys.argv[2]
rank = int(os.environ["RANK"])


def train_step():
    threading.Event().wait()


def load(items):
    items.put("one")
    items.put("two")


def serve_stacks():
    """PyTorch's own server of stacks, which tells in the store of the job where it is."""
    from torch.distributed.debug import start_debug_server

    try:
        start_debug_server(port=0)
    except ModuleNotFoundError:
        # The page of rank 0 wants packages that PyTorch does not. The servers of the workers come before it.
        pass


if "--debug-server" in sys.argv:
    serve_stacks()
print(f"ready {rank}", flush=True)
while not os.path.exists(begin):
    rallypoint.beat(0)
    time.sleep(0.05)
rallypoint.beat(1)
print(f"hung {rank} at {time.monotonic()}", flush=True)
if rank == odd:
    load(queue.Queue(1))
train_step()
