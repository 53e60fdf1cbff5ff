"""`python -m bench.peers [--quick|--long] [--only a,c] [--heads N] [--write-only] [--out DIRECTORY]`"""

import argparse
import os
import pathlib
import resource
import socket
import subprocess
import sys
import time

# For the processes that are started, too. See conftest.py.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")
os.environ.setdefault("RUST_LOG", "error")

from servers import HOST, TARGET

from . import machine, parts, publish
from .crew import Crew
from .progress import Progress, clock_text
from .results import Part, Results


class Context:
    """What a part needs besides itself."""

    def __init__(self, mode, heads, progress):
        self.mode, self.heads, self.progress = mode, heads, progress
        self._crew = None

    @property
    def crew(self):
        """The processes with PyTorch, started when they are first needed."""
        self._crew = self._crew or Crew()
        return self._crew

    turns = staticmethod(parts.in_turns)

    def step(self, what, share):
        self.progress.step(what, share)

    def say(self, what):
        self.progress.write(what)

    def free_endpoint(self):
        with socket.create_server((HOST, 0)) as listener:
            return f"{HOST}:{listener.getsockname()[1]}"

    def __enter__(self):
        return self

    def __exit__(self, *details):
        if self._crew:
            self._crew.__exit__(*details)


def versions():
    import torch

    def first_line(*command):
        said = subprocess.run(command, capture_output=True, text=True).stdout
        return said.splitlines()[0].split()[-1] if said else "?"

    etcd = os.environ.get("RALLYPOINT_ETCD_3_5", str(TARGET / "tools" / "etcd-3.5" / "etcd"))
    return {
        "rallypoint": first_line(str(TARGET / "release" / "rallypoint"), "--version"),
        "PyTorch": torch.__version__.partition("+")[0],
        "Python": sys.version.split()[0],
        "etcd": first_line(etcd, "--version"),
    }


def arguments():
    parser = argparse.ArgumentParser(prog="bench.peers", description="Ours and its peers, alternately, in one run.")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--quick", action="store_true", help="a few minutes, into target/bench-peers")
    mode.add_argument("--long", action="store_true", help="more rounds and longer limits: an hour and more")
    parser.add_argument("--only", metavar="PARTS", help="measure these parts, as a,c or forming,stores")
    parser.add_argument(
        "--heads", type=int, default=3, metavar="N",
        help="hosts in the endpoint of ours when a head is lost, which succeed each other (default 3)",
    )  # fmt: skip
    parser.add_argument("--write-only", action="store_true", help="measure nothing, and write pages and plots again")
    parser.add_argument(
        "--out", type=pathlib.Path, metavar="DIRECTORY",
        help="write results, plots and copies of the pages there, and leave the documents as they are",
    )  # fmt: skip
    return parser.parse_args()


def main():
    options = arguments()
    mode = "quick" if options.quick else "long" if options.long else "default"
    try:
        chosen = parts.named(options.only) if options.only else list(parts.ALL)
    except ValueError as error:
        sys.exit(f"bench.peers: {error}")
    # Documents never show the figures of a quick run.
    place = publish.Place(machine.ROOT, options.out or (TARGET / "bench-peers" if options.quick else None))
    results = Results.read(place.results)
    if not options.write_only:
        run(results, place, chosen, mode, options.heads)
    publish.everything(results, place)
    print(f"written: {place.results}, and beside it the plots; pages: {', '.join(map(str, place.pages()))}")


def run(results, place, chosen, mode, heads):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    measured = machine.describe(mode, versions())
    estimate = sum(part.ESTIMATES[mode] for part in chosen)
    progress = Progress(estimate)
    progress.write(f"{len(chosen)} parts, about {clock_text(estimate)}; load average {measured['load']}")
    with Context(mode, heads, progress) as context:
        for module in chosen:
            progress.begin(module.NAME, module.ESTIMATES[mode])
            begun, part = time.monotonic(), Part(dict(measured))
            module.measure(part, context)
            part.measured["seconds"] = round(time.monotonic() - begun)
            results.parts[module.NAME] = part
            # A run that is interrupted keeps what it has.
            results.write(place.results)


main()
