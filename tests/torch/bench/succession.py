"""The loss of the host that serves beside the loss of any other, for `rallypoint run`, torchrun with our plugin, and
torchrun with `c10d`:

    python -m bench.succession [--rounds N] [--limit S] [--only launcher|plugin|c10d] [--how FAULT] [--json]

Five nodes on hosts that are network namespaces, of which three are enough, with the defaults of each backend. A worker
holds a connection to rank 0 and fails as soon as that breaks, as a collective does: so whatever learns of a loss from
its workers has its chance. Seconds from the loss until all workers of the nodes that are left have started again.
"""

import argparse
import functools
import json
import pathlib
import statistics
import sys
import time

from hosts import Network
from launchers import Job, Ours, Stock

from . import builds
from .launcher import Place, WithPlugin, say

NAMES = [f"node{number}" for number in range(5)]
NODES = "3:5"
PORT = 29400
ORDER = ",".join(f"{name}:{PORT}" for name in NAMES[:3])
LINK = pathlib.Path(__file__).with_name("link.py")

KINDS = {"launcher": functools.partial(Ours, builds.profile), "plugin": WithPlugin, "c10d": Stock}
HEADINGS = {"launcher": "`rallypoint run`", "plugin": "torchrun, our plugin", "c10d": "torchrun, `c10d`"}
MEETINGS = {
    "launcher": ["--rdzv-endpoint", ORDER],
    "plugin": ["--rdzv-backend", "rallypoint", "--rdzv-endpoint", ORDER],
    "c10d": ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{NAMES[0]}:{PORT}"],
}

# The node that is lost, and the one that is lost with it where there are two. The host after the head is the next one
# that may serve.
LOST = {"the head": (NAMES[0], NAMES[1]), "another node": (NAMES[4], NAMES[3])}


class Fault:
    """What happens to a node, or to two of them."""

    nodes = 1

    def __init__(self, words):
        self.words = words

    def strike(self, network, launchers, names):
        raise NotImplementedError


class LauncherKilled(Fault):
    """The kernel of its host lives, and so may its workers."""

    def strike(self, network, launchers, names):
        for name in names:
            launchers[name].kill()


class HostKilled(Fault):
    """All its processes end. Its kernel refuses connections."""

    def strike(self, network, launchers, names):
        for name in names:
            network.hosts[name].kill()


class Vanished(Fault):
    """It answers no more, and nobody is told."""

    def strike(self, network, launchers, names):
        for name in names:
            network.unplug(name)
            network.hosts[name].kill()


class CutOff(Fault):
    """The same, and it lives on, with its workers, until it has noticed."""

    def __init__(self, words, nodes):
        super().__init__(words)
        self.nodes = nodes

    def strike(self, network, launchers, names):
        network.part(*names)


FAULTS = {
    "agent": LauncherKilled("launcher killed"),
    "killed": HostKilled("host killed"),
    "vanished": Vanished("host vanished"),
    "alone": CutOff("cut off alone", 1),
    "pair": CutOff("cut off with one node", 2),
}


def measure(kind, place, lost, fault, limit):
    """The seconds until the others have new workers. Without them, none, and the seconds until their launchers have
    ended, if they have."""
    lost = lost[: fault.nodes]
    network = Network(place.path, NAMES)
    try:
        with Job(KINDS[kind](), place.path, nodes=NODES) as job:
            job.meeting = ["--nnodes", NODES, "--rdzv-id", job.run_id, *MEETINGS[kind]]
            launchers = {}
            for name in NAMES:
                worker = place.worker(sys.executable, LINK)
                by = network.hosts[name].enter()
                launchers[name] = job.start("--max-restarts", 3, "--no-python", *worker, by=by)
            place.hear(len(NAMES))
            time.sleep(3)  # Until the workers have their connections, and the leases were renewed.
            while place.hear_some(0):
                pass  # Nothing but what comes after the loss counts.
            others = [launcher for name, launcher in launchers.items() if name not in lost]
            begun = time.monotonic()
            fault.strike(network, launchers, lost)
            try:
                return until_again(place, others, begun, limit)
            finally:
                # Nobody waits for launchers that wait for each other.
                for host in network.hosts.values():
                    host.kill()
    finally:
        network.close()


def until_again(place, others, begun, limit):
    """Fewer nodes than three have no workers, so all that start now are those of the others."""
    heard = {}
    while time.monotonic() < begun + limit:
        heard |= place.hear_some(0.05)
        if len(heard) >= len(others):
            return time.monotonic() - begun, None
        if all(launcher.process.poll() is not None for launcher in others):
            return None, time.monotonic() - begun
    return None, None


def described(samples, limit):
    """The cell of a table."""
    times = [taken for taken, _ in samples if taken is not None]
    if times:
        text = f"{statistics.median(times):.2f}"
        text += f" ({min(times):.2f} to {max(times):.2f})" if len(times) > 1 else ""
        return text if len(times) == len(samples) else f"{text}, {len(times)} of {len(samples)} times"
    ends = [ended for _, ended in samples if ended is not None]
    return f"never: all have ended after {statistics.median(ends):.0f} s" if ends else f"not within {limit:.0f} s"


def main():
    parser = argparse.ArgumentParser(prog="bench.succession", description="The loss of the head beside other losses.")
    parser.add_argument("--rounds", type=int, default=3, help="measure everything N times, in turns (default 3)")
    parser.add_argument("--limit", type=float, default=60, help="wait for S seconds at most (default 60)")
    parser.add_argument("--only", choices=KINDS, help="measure only this one")
    parser.add_argument("--how", choices=FAULTS, help="measure only this fault")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    kinds = [kind for kind in KINDS if options.only in (None, kind)]
    faults = [how for how in FAULTS if options.how in (None, how)]
    rows = {(who, how): {kind: [] for kind in kinds} for how in faults for who in LOST}
    for number in range(options.rounds):
        for (who, how), row in rows.items():
            for kind in kinds if number % 2 else kinds[::-1]:
                if any(recovered is None for recovered, _ in row[kind]):
                    continue  # To wait for the limit once is enough.
                say(f"{who}: {FAULTS[how].words}, {kind}, round {number + 1} of {options.rounds}")
                with Place() as place:
                    row[kind].append(measure(kind, place, LOST[who], FAULTS[how], options.limit))
    if options.json:
        names = ("recovered", "ended")
        cells = [
            {"lost": who, "how": how, "kind": kind, "seconds": [dict(zip(names, sample)) for sample in samples]}
            for (who, how), row in rows.items()
            for kind, samples in row.items()
        ]
        print(json.dumps(cells, indent=1))
        return
    print(f"| lost | {' | '.join(HEADINGS[kind] for kind in kinds)} |")
    print(f"|---|{'--:|' * len(kinds)}")
    for (who, how), row in rows.items():
        cells = " | ".join(described(row[kind], options.limit) for kind in kinds)
        print(f"| {who}: {FAULTS[how].words} | {cells} |")
    print("\nSeconds until all workers of the others run again: median, least and most.")


if __name__ == "__main__":
    main()
