"""A worker under torchrun. It writes down what it was told, and does what files in its directory say.

    plugin_job.py <directory> <name of its agent> [train] [count] [stubborn] [look] [hang]

`stop` ends it well, and `stop-<agent>` if it is that agent's. `fail-<agent>` makes one worker of that agent fail, after
it killed the processes in that file.
With `look` it writes down which workers of other groups live when it starts.
With `hang` it beats until the file `hang` holds a rank. Then that rank waits in another place than the others do.
To start quickly it does without PyTorch, unless it is to train. Then it adds up ones with the others all the time.
"""

import contextlib
import ctypes
import itertools
import json
import os
import pathlib
import queue
import signal
import sys
import threading
import time

directory, agent, *deeds = sys.argv[1:]
directory = pathlib.Path(directory)
MASTER = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"


def write_down(**what):
    line = json.dumps({"agent": agent, "pid": os.getpid(), **what}) + "\n"
    # One write to the end of a file is not torn.
    with open(directory / "events", "ab", buffering=0) as events:
        events.write(line.encode())


def die_with_agent():
    """No other process would end the workers of an agent that was killed."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        sys.exit("the agent is gone already")


def start_helper():
    """A process in the session of this worker, and not in its group, that ends only if it is killed, like the worker
    itself from now on."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pid = os.fork()
    while pid == 0:
        signal.pause()
    os.setpgid(pid, pid)
    return pid


def living(condition):
    """The processes that have written down what meets the condition, and are still about."""
    from agents import lives

    with open(directory / "events", "a+") as events:
        events.seek(0)
        pids = [event["pid"] for event in map(json.loads, events) if condition(event)]
    return [pid for pid in pids if lives(pid)]


def predecessors():
    """Earlier workers of this agent that are still about."""
    return living(lambda event: event["agent"] == agent)


def strangers():
    """Workers of other groups that are still about."""
    return living(lambda event: event.get("master", MASTER) != MASTER)


def starts():
    """How many workers have begun with the store of this group."""
    import rallypoint

    return rallypoint.TcpStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])).add("starts", 1)


def train():
    """Forms a group with gloo. Returns the sum of ones, and what finds the most of everybody's numbers."""
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    def most(number):
        numbers = torch.tensor([float(number)])
        dist.all_reduce(numbers, dist.ReduceOp.MAX)
        return numbers.item()

    # Nobody who waits for another that is stopped may be saved by this.
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item(), most


def train_step():
    threading.Event().wait()


def load(items):
    items.put("one")
    items.put("two")


def hang():
    """Makes progress until it is told not to, and no more."""
    import rallypoint

    for step in itertools.count():
        rallypoint.beat(step)
        beaten = time.monotonic()
        with contextlib.suppress(FileNotFoundError, ValueError):
            odd = int((directory / "hang").read_text())
            break
        time.sleep(0.05)
    write_down(hung=int(os.environ["RANK"]), beaten=beaten, step=step)
    if os.environ["RANK"] == str(odd):
        load(queue.Queue(1))
    train_step()


def fail_if_told():
    try:
        instruction = directory / f"fail-{agent}"
        victims = json.loads(instruction.read_text())
        instruction.unlink()
    except FileNotFoundError:
        return
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    os._exit(7)


die_with_agent()
found = {}
most = float
if "train" in deeds:
    found["total"], most = train()
if "count" in deeds:
    found["starts"] = starts()
if "stubborn" in deeds:
    found["predecessors"] = predecessors()
    found["helper"] = start_helper()
write_down(
    rank=int(os.environ["RANK"]),
    world=int(os.environ["WORLD_SIZE"]),
    node=int(os.environ["GROUP_RANK"]),
    master=MASTER,
    restarts=int(os.environ["TORCHELASTIC_RESTART_COUNT"]),
    **found,
)
if "look" in deeds and (seen := strangers()):
    # After it has written that it is there itself: of two that start together, one sees the other.
    write_down(strangers=seen)
if "hang" in deeds:
    hang()
while not most(any((directory / name).exists() for name in ("stop", f"stop-{agent}"))):
    fail_if_told()
    time.sleep(0.02)
if "stubborn" in deeds:
    os.kill(found["helper"], signal.SIGKILL)
write_down(done=True)
if "train" in deeds:
    # In PyTorch 2.6 whoever is still about to receive waits for ever if the sender is gone.
    time.sleep(0.2)
    sys.modules["torch.distributed"].destroy_process_group()
