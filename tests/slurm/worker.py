"""The training script of the tests: it says what it sees, and goes on until a file tells it to end.

It is started in the directory of its job. `go-<step>` ends the workers of that step with success. SIGUSR1 does so too,
unless there is a file `stay`.
"""

import json
import os
import pathlib
import signal
import socket
import sys
import time

NAMES = ("RANK", "WORLD_SIZE", "MASTER_", "TORCHELASTIC_", "RALLYPOINT_", "SLURM_", "CUDA_")


def write(name, text):
    """Whole or not at all, since somebody looks."""
    unfinished = pathlib.Path(f".{name}.{os.getpid()}")
    unfinished.write_text(text)
    unfinished.rename(name)


def heard(number, _frame):
    write(f"heard-{signal.Signals(number).name}-{os.environ['RANK']}", str(os.getpid()))
    if number == signal.SIGTERM:
        sys.exit(128 + number)
    if not pathlib.Path("stay").exists():
        sys.exit(0)


for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, heard)

step = os.environ["SLURM_STEP_ID"]
seen = {name: value for name, value in os.environ.items() if name.startswith(NAMES)}
seen.update(pid=os.getpid(), host=socket.gethostname(), arguments=sys.argv[1:])
write(f"seen-{step}-{os.getpid()}", json.dumps(seen))
while not pathlib.Path(f"go-{step}").exists():
    # Signals are heard here.
    time.sleep(0.02)
