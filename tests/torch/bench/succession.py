"""The loss of the host that serves beside the loss of any other, for `rallypoint run`, torchrun with our plugin, and
torchrun with `c10d`:

    python -m bench.succession [--rounds N] [--limit S] [--only launcher|plugin|c10d] [--json]

Four nodes on hosts that are network namespaces, with the defaults of each backend. A worker holds a connection to
rank 0 and fails as soon as that breaks, as a collective does: so whatever learns of a loss from its workers has its
chance. Seconds from the loss until all workers of the three other nodes have started again.
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

NAMES = [f"node{number}" for number in range(4)]
PORT = 29400
ORDER = ",".join(f"{name}:{PORT}" for name in NAMES[:3])
LINK = pathlib.Path(__file__).with_name("link.py")

KINDS = {"launcher": functools.partial(Ours, builds.profile), "plugin": WithPlugin, "c10d": Stock}
MEETINGS = {
    "launcher": ["--rdzv-endpoint", ORDER],
    "plugin": ["--rdzv-backend", "rallypoint", "--rdzv-endpoint", ORDER],
    "c10d": ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{NAMES[0]}:{PORT}"],
}
LOST = {"the head": NAMES[0], "another node": NAMES[3]}


def kill(network, name):
    """All processes of a host end. Its kernel refuses connections."""
    network.hosts[name].kill()


def vanish(network, name):
    """The host answers no more, and nobody is told."""
    network.unplug(name)
    network.hosts[name].kill()


LOSSES = {"killed": kill, "vanished": vanish}


def measure(kind, place, lost, lose, limit):
    """The seconds until the others have new workers. Without them, none, and the seconds until their launchers have
    ended, if they have."""
    network = Network(place.path, NAMES)
    try:
        with Job(KINDS[kind](), place.path, nodes="3:4") as job:
            job.meeting = ["--nnodes", "3:4", "--rdzv-id", job.run_id, *MEETINGS[kind]]
            for name in NAMES:
                worker = place.worker(sys.executable, LINK)
                by = network.hosts[name].enter()
                job.start("--max-restarts", 3, "--no-python", *worker, by=by)
            place.hear(len(NAMES))
            time.sleep(3)  # Until the workers have their connections, and the leases were renewed.
            begun = time.monotonic()
            lose(network, lost)
            others = [one.process for name, one in zip(NAMES, job.launchers) if name != lost]
            heard = {}
            while time.monotonic() < begun + limit:
                heard |= place.hear_some(0.05)
                if len(heard) >= len(others):
                    return time.monotonic() - begun, None
                if all(process.poll() is not None for process in others):
                    return None, time.monotonic() - begun
            return None, None
    finally:
        network.close()


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
    parser.add_argument("--rounds", type=int, default=5, help="measure everything N times, in turns (default 5)")
    parser.add_argument("--limit", type=float, default=60, help="wait for S seconds at most (default 60)")
    parser.add_argument("--only", choices=KINDS, help="measure only this one")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    kinds = [kind for kind in KINDS if options.only in (None, kind)]
    rows = {(who, how): {kind: [] for kind in kinds} for how in LOSSES for who in LOST}
    for number in range(options.rounds):
        for (who, how), row in rows.items():
            for kind in kinds if number % 2 else kinds[::-1]:
                say(f"{who} {how}, {kind}, round {number + 1} of {options.rounds}")
                with Place() as place:
                    row[kind].append(measure(kind, place, LOST[who], LOSSES[how], options.limit))
    if options.json:
        names = ("recovered", "ended")
        cells = [
            {"lost": who, "how": how, "kind": kind, "seconds": [dict(zip(names, sample)) for sample in samples]}
            for (who, how), row in rows.items()
            for kind, samples in row.items()
        ]
        print(json.dumps(cells, indent=1))
        return
    print(f"| lost | {' | '.join(kinds)} |")
    print(f"|---|{'--:|' * len(kinds)}")
    for (who, how), row in rows.items():
        print(f"| {who}, {how} | {' | '.join(described(row[kind], options.limit) for kind in kinds)} |")
    print("\nSeconds until all workers of the others run again: median, least and most.")


if __name__ == "__main__":
    main()
