"""`python -m bench.peers [--smoke|--quick|--long] [--only a,c] [--heads N] [--write-only] [--out DIRECTORY]`"""

import argparse
import contextlib
import importlib.metadata
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
import traceback

# For the processes that are started, too. See conftest.py.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")
os.environ.setdefault("RUST_LOG", "error")

from servers import HOST, TARGET, free_port

from bench import builds

from . import h2load, machine, parts, publish
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
        return f"{HOST}:{free_port()}"

    def dismiss(self):
        """Ends them. A part that needs them later gets new ones."""
        if self._crew:
            self._crew.__exit__()
            self._crew = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.dismiss()


def versions(chosen):
    """Of all programs that are measured, or measure."""

    def told_by(program):
        said = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
        return said.splitlines()[0].split()[-1] if said else "?"

    found = {
        "rallypoint": told_by(builds.rallypoint()),
        "PyTorch": importlib.metadata.version("torch").partition("+")[0],
        "Python": sys.version.split()[0],
        "etcd": " and ".join(told_by(program) for program in parts.server.etcds().values() if program),
    }
    return {**found, "h2load": told_by(h2load.program())} if parts.server in chosen else found


def arguments():
    parser = argparse.ArgumentParser(prog="bench.peers", description="Ours and its peers, alternately, in one run.")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--smoke", action="store_true",
        help="a minute or two with a debug build, into target/bench-peers: whether all parts run",
    )  # fmt: skip
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
    mode = next((name for name in ("smoke", "quick", "long") if getattr(options, name)), "default")
    if options.smoke:
        builds.profile = "debug"
    try:
        chosen = parts.named(options.only) if options.only else list(parts.ALL)
    except ValueError as error:
        sys.exit(f"bench.peers: {error}")
    # Documents never show the figures of a quick run.
    documents = publish.Place(machine.ROOT)
    out = options.out or (TARGET / "bench-peers" if mode in ("smoke", "quick") else None)
    place = publish.Place(machine.ROOT, out) if out else documents
    # What is only written again, and was not measured there, are the documents' results.
    source = place if place.results.exists() or not options.write_only else documents
    results = Results.read(source.results)
    failed = [] if options.write_only else run(results, place, chosen, mode, options.heads)
    results.write(place.results)
    publish.everything(results, place)
    print(f"written: {place.results}, and beside it the plots; pages: {', '.join(map(str, place.pages()))}")
    if failed:
        sys.exit(f"bench.peers: failed, and not measured: {', '.join(failed)}; why is above")


@contextlib.contextmanager
def temporary_files():
    """A server in memory that is killed leaves a note for the next one. They are in a directory that goes with the
    run."""
    with tempfile.TemporaryDirectory(prefix="rallypoint-bench-") as directory:
        os.environ["TMPDIR"] = directory
        os.environ.pop("XDG_RUNTIME_DIR", None)
        yield


def run(results, place, chosen, mode, heads):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    measured = machine.describe(mode, versions(chosen))
    failed = []
    estimate = sum(part.ESTIMATES[mode] for part in chosen)
    progress = Progress(estimate)
    progress.write(f"{len(chosen)} parts, about {clock_text(estimate)}; load average {measured['load']}")
    with temporary_files(), Context(mode, heads, progress) as context:
        for module in chosen:
            progress.begin(module.NAME, module.ESTIMATES[mode])
            begun, part = time.monotonic(), Part(dict(measured))
            try:
                module.measure(part, context)
                part.measured["seconds"] = round(time.monotonic() - begun)
                results.parts[module.NAME] = part
                # A run that is interrupted keeps what it has, in the results and in the pages.
                results.write(place.results)
                publish.everything(results, place)
            except (Exception, SystemExit):
                # The other parts are still of use.
                traceback.print_exc()
                failed.append(module.NAME)
                context.dismiss()
    return failed


main()
