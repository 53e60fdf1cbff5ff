"""`rallypoint run`, and torchrun with our plugin, against torchrun:

    python -m bench.launcher [--rounds N] [--only start|recovery|agent|plugin] [--json]

The workers are shell scripts, or `true`, so that what is measured is the launcher and not the start of PyTorch.
"""

import argparse
import os
import pathlib
import select
import signal
import sys
import tempfile
import time

from launchers import Job, Ours, Stock
from servers import HOST, PATIENCE

from . import builds
from .etcd_store import Etcd
from .report import OURS, STOCK, Report

NODES, WORKERS = 4, 4
STANDALONE = ["--standalone", "--nproc-per-node", str(WORKERS), "--no-python"]

# Its arguments: where to say which rank it has and which process it is, and what to do then.
WORKER = """#!/bin/sh
echo "$RANK $$" >"$1"
shift
exec "$@"
"""


class OnEtcd(Stock):
    """torchrun with one of its backends on etcd."""

    def __init__(self, backend, server):
        self.backend, self.server = backend, server

    def meeting(self, nodes, port, run_id, host):
        endpoint = f"{HOST}:{self.server.port}"
        return ["--nnodes", nodes, "--rdzv-backend", self.backend, "--rdzv-id", run_id, "--rdzv-endpoint", endpoint,
                "--local-addr", HOST]  # fmt: skip


class WithPlugin(Stock):
    """torchrun with our backend."""

    def meeting(self, nodes, port, run_id, host):
        return ["--nnodes", nodes, "--rdzv-backend", "rallypoint", "--rdzv-id", run_id, "--rdzv-endpoint",
                f"{HOST}:{port}", "--local-addr", HOST]  # fmt: skip


class Place:
    """A directory with the workers' script, and a pipe by which they are heard the moment they are there."""

    def __init__(self):
        self._directory = tempfile.TemporaryDirectory(prefix="rallypoint-bench-")
        self.path = pathlib.Path(self._directory.name)
        self.script, self.pipe = self.path / "worker", self.path / "pipe"
        self.script.write_text(WORKER)
        self.script.chmod(0o700)
        os.mkfifo(self.pipe)
        self._reader = os.open(self.pipe, os.O_RDWR)

    def worker(self, *then):
        return [str(self.script), str(self.pipe), *then]

    def hear(self, count):
        """Waits for that many ranks, or more if they come together. Returns their processes."""
        processes = {}
        while len(processes) < count:
            if not select.select([self._reader], [], [], PATIENCE.total_seconds())[0]:
                sys.exit(f"only {len(processes)} of {count} workers came")
            processes |= self._read()
        return processes

    def hear_some(self, seconds):
        """Those that come first, within this time."""
        return self._read() if select.select([self._reader], [], [], seconds)[0] else {}

    def _read(self):
        # A line is written at once, and short enough not to be mixed with others.
        lines = os.read(self._reader, 4096).decode().splitlines()
        return dict(map(int, line.split()) for line in lines)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._reader)
        self._directory.cleanup()


def say(progress):
    print(f"measuring {progress} …", file=sys.stderr)


def milliseconds(begun):
    return (time.perf_counter() - begun) * 1e3


def alone(kind, place):
    return Job(kind, place.path, meeting=STANDALONE)


def first_line(kind, place):
    with alone(kind, place) as job:
        begun = time.perf_counter()
        launcher = job.start(*place.worker("true"))
        first = place.hear(1)
        taken = milliseconds(begun)
        finish(launcher)
    place.hear(WORKERS - len(first))
    return taken


def whole_job(kind, place):
    with alone(kind, place) as job:
        begun = time.perf_counter()
        finish(job.start("true"))
        return milliseconds(begun)


def peak_memory(kind, place):
    """Of the launcher's own process, in MiB. The kernel keeps the peak as long as the process lives, so it is read
    again and again until that ends."""
    peak = 0
    with alone(kind, place) as job:
        launcher = job.start("true")
        while launcher.process.poll() is None:
            with open(f"/proc/{launcher.process.pid}/status") as status:
                lines = [line for line in status if line.startswith("VmHWM:")]
            peak = int(lines[0].split()[1]) if lines else peak
            time.sleep(0.001)
        finish(launcher)
    return peak / 1024


def finish(launcher):
    if launcher.exit_code() != 0:
        sys.exit(f"a launcher failed:\n{launcher.said()}")


def recovery(kind, place):
    """One of four nodes loses its worker: until all four have a new one."""
    with Job(kind, place.path, NODES) as job:
        for _ in range(NODES):
            job.start("--max-restarts", 1, "--no-python", *place.worker("sleep", "3600"))
        processes = place.hear(NODES)
        time.sleep(1)  # For whatever a launcher still does when its workers have started.
        begun = time.perf_counter()
        os.kill(processes[NODES - 1], signal.SIGKILL)
        place.hear(NODES)
        return milliseconds(begun)


def regroup(kind, place):
    """One of four nodes is killed: until the other three have new workers. It neither serves nor has rank 0."""
    with Job(kind, place.path, f"{NODES - 1}:{NODES}") as job:
        for _ in range(NODES):
            job.start("--max-restarts", 1, "--no-python", *place.worker("sleep", "3600"))
        place.hear(NODES)
        time.sleep(1)
        begun = time.perf_counter()
        job.launchers[-1].process.kill()
        place.hear(NODES - 1)
        return milliseconds(begun)


MEASURES = {
    "start to a worker's first line, ms": first_line,
    "start to end, 4 workers of `true`, ms": whole_job,
    "peak memory of the launcher, MiB": peak_memory,
}


def in_turns(number, sides):
    return sides if number % 2 else sides[::-1]


def measure_start(report, place, rounds):
    sides = [(OURS, Ours(builds.profile)), (STOCK, Stock())]
    for number in range(rounds):
        say(f"the start, round {number + 1} of {rounds}")
        for what, measure in MEASURES.items():
            for side, kind in in_turns(number, sides):
                report.add(what, side, measure(kind, place))


def measure_recovery(report, place, rounds):
    server = Etcd()
    try:
        peers = {"c10d": Stock(), "etcd-v2": OnEtcd("etcd-v2", server), "etcd": OnEtcd("etcd", server)}
        for number in range(rounds):
            say(f"recovery, round {number + 1} of {rounds}")
            for name, peer in in_turns(number, list(peers.items())):
                # Ours is measured beside each of them, and is the same each time.
                for side, kind in in_turns(number, [(OURS, Ours(builds.profile)), (STOCK, peer)]):
                    report.add(f"worker killed to {NODES} nodes restarted, {name}, ms", side, recovery(kind, place))
    finally:
        server.stop()


def measure_agent(report, place, rounds):
    """Ours alone: agents of torchrun do not notice until a collective of their workers times out."""
    for number in range(rounds):
        say(f"a killed agent, round {number + 1} of {rounds}")
        report.add(f"agent killed to {NODES - 1} nodes in a new group, ms", OURS, regroup(Ours(builds.profile), place))


def measure_plugin(report, place, rounds):
    for number in range(rounds):
        say(f"torchrun with the plugin, round {number + 1} of {rounds}")
        for side, kind in in_turns(number, [(OURS, WithPlugin()), (STOCK, Stock())]):
            what = f"worker killed to {NODES} nodes restarted, torchrun with plugin and c10d, ms"
            report.add(what, side, recovery(kind, place))


PARTS = {"start": measure_start, "recovery": measure_recovery, "agent": measure_agent, "plugin": measure_plugin}


def main():
    parser = argparse.ArgumentParser(prog="bench.launcher", description="`rallypoint run` and torchrun, side by side.")
    parser.add_argument("--rounds", type=int, default=5, help="measure everything N times, in turns (default 5)")
    parser.add_argument("--only", choices=PARTS, help="measure only this part")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    report = Report()
    with Place() as place:
        for name, measure in PARTS.items():
            if options.only in (None, name):
                measure(report, place, options.rounds)
    report.print_json() if options.json else report.print_table()


if __name__ == "__main__":
    main()
