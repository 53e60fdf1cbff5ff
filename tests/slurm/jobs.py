"""Jobs on the cluster, as their users submit them."""

import json
import pathlib
import time

from hosts import until

WORKER = pathlib.Path(__file__).with_name("worker.py")
# What a process does that was suspended, by control groups or by signals.
STILL = {"D", "T"}
OVER = {"CANCELLED", "COMPLETED", "FAILED", "NODE_FAIL", "TIMEOUT"}


class Job:
    """A batch script, of these lines or from a file, and what its workers say in its directory.

    `train.py` is there, and is the worker of these tests.
    """

    def __init__(self, cluster, directory, *lines, options=("--nodes=3",), script=None):
        self.cluster = cluster
        self.directory = directory
        (directory / "train.py").symlink_to(WORKER)
        if script is None:
            script = directory / "job.sh"
            script.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        words = ["sbatch", "--parsable", "--output=output", "--open-mode=append", *options, script]
        self.number = cluster.command(*words, directory=directory)

    def scontrol(self, verb):
        self.cluster.command("scontrol", verb, self.number)

    def about(self):
        """What Slurm says of it."""
        words = self.cluster.command("scontrol", "--oneliner", "show", "job", self.number).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def output(self):
        file = self.directory / "output"
        return file.read_text() if file.exists() else ""

    def over(self):
        """Why nothing more can come of it, if that is so."""
        state = self.about()["JobState"]
        return f"the job is {state}: {self.output()}" if state in OVER else None

    def workers(self, step=0):
        """What every worker saw that ever ran."""
        return [json.loads(file.read_text()) for file in self.directory.glob(f"seen-{step}-*")]

    def group(self, size, step=0, after=()):
        """The workers of a group of this size, by rank, none of which was one of `after`."""
        old = {worker["pid"] for worker in after}

        def formed():
            new = [worker for worker in self.workers(step) if worker["pid"] not in old]
            rounds = [int(worker["RALLYPOINT_ROUND"]) for worker in new]
            last = [worker for worker in new if int(worker["RALLYPOINT_ROUND"]) == max(rounds)]
            return len(last) == size and sorted(last, key=lambda worker: int(worker["RANK"]))

        group = until(f"a group of {size} has formed", formed, self.over, self.output)
        seen = [(int(worker["RANK"]), int(worker["WORLD_SIZE"])) for worker in group]
        assert seen == [(rank, size) for rank in range(size)], f"{seen}: {self.output()}"
        return group

    def runs(self, size):
        """Whether a group of this size has run for a while, which a node that has lost its place does not."""
        last = [worker for worker in self.workers() if state(worker) in ("R", "S")]
        if len(last) != size or len({worker["RALLYPOINT_ROUND"] for worker in last}) != 1:
            return False
        time.sleep(3)
        return all(state(worker) in ("R", "S") for worker in last)

    def tell(self, step=0):
        """Lets the workers of a step succeed."""
        (self.directory / f"go-{step}").touch()

    def heard(self, signal):
        """The ranks that got a signal."""
        return sorted(int(file.name.rsplit("-", 1)[1]) for file in self.directory.glob(f"heard-{signal}-*"))

    def ends(self, state="COMPLETED"):
        """Waits until it is over, with this state, and nothing of it is left on any node."""
        about = until("the job is over", lambda: self.over() and self.about())
        assert about["JobState"] == state, self.output()
        until("the nodes are idle", lambda: set(self.cluster.states().values()) == {"idle"})
        until("nothing of it is left", lambda: not self.cluster.left(), about=self.cluster.left)
        return self.output()


def state(worker):
    """What its process does: `R` and `S` for one that runs or waits, `D` for one that is frozen, `None` if it ended."""
    try:
        text = pathlib.Path(f"/proc/{worker['pid']}/stat").read_text()
    except OSError:
        return None
    letter = text.rsplit(")", 1)[1].split()[0]
    return None if letter in "XZ" else letter


def is_alive(worker):
    return state(worker) is not None
