"""Jobs of launchers on several hosts of one machine: who starts them, and how their workers are heard."""

import contextlib
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time
import uuid

from bench import builds
from bench.workers import TESTS

sys.path.append(str(TESTS.parent / "slurm"))

from hosts import Network  # noqa: E402

HEAD = "node0"

# Its argument is where to say which rank, node and process it is, and of how large a group.
WORKER = """#!/bin/sh
echo "$RANK $BENCH_NODE $$ $WORLD_SIZE" >"$1"
exec sleep 3600
"""


class Launcher:
    """`rallypoint run`."""

    name = "rallypoint run"

    def start(self, job, number, arguments, environment):
        command = job.host(number).enter(builds.rallypoint(), "run", *arguments)
        with open(job.directory / f"{number}.log", "wb") as log:
            process = subprocess.Popen(
                command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        job.children.append(process)
        return process.pid

    def meeting(self, endpoint):
        return ["--rdzv-endpoint", endpoint]


class Torchrun:
    """torchrun with one of its backends, forked by the crew."""

    def __init__(self, name, backend, crew):
        self.name, self.backend, self.crew = name, backend, crew

    def start(self, job, number, arguments, environment):
        keeper = job.host(number).keeper.pid
        return self.crew.torchrun(arguments, job.directory / f"{number}.log", keeper, environment)

    def meeting(self, endpoint):
        return ["--rdzv-backend", self.backend, "--rdzv-endpoint", endpoint]


class Hosts:
    """A network of so many hosts, for as long as the block lasts."""

    def __init__(self, count):
        self._directory = tempfile.TemporaryDirectory(prefix="rallypoint-bench-")
        self.path = pathlib.Path(self._directory.name)
        self.names = [f"node{number}" for number in range(count)]
        self.network = Network(self.path, self.names)
        self.ports = iter(range(29400, 32000))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.network.close()
        self._directory.cleanup()


class HostJob:
    """A launcher on each of the first hosts, with one worker each."""

    def __init__(self, kind, hosts, nodes, heads=1, conf=()):
        self.kind, self.hosts, self.nodes = kind, hosts, nodes
        self.directory = pathlib.Path(tempfile.mkdtemp(dir=hosts.path))
        self.children, self.agents, self.cut = [], {}, []
        self.script, self.pipe = self.directory / "worker", self.directory / "pipe"
        self.script.write_text(WORKER)
        self.script.chmod(0o700)
        os.mkfifo(self.pipe)
        self.reader = os.open(self.pipe, os.O_RDWR | os.O_NONBLOCK)
        port, run_id = next(hosts.ports), f"bench-{uuid.uuid4().hex[:12]}"
        endpoint = ",".join(f"node{number}:{port}" for number in range(heads))
        common = ["--nnodes", f"{nodes - 1}:{nodes}", "--nproc-per-node", "1", "--max-restarts", "100"]
        common += ["--rdzv-conf", ",".join(conf)] if conf else []
        for number in range(nodes):
            # Hosts have files of their own: a launcher leaves notes there for the next one on its host.
            own = self.directory / f"host{number}"
            own.mkdir(mode=0o700)
            environment = {"BENCH_NODE": str(number), "OMP_NUM_THREADS": "1"}
            environment.update(TMPDIR=str(own), XDG_RUNTIME_DIR=str(own))
            arguments = [*common, "--rdzv-id", run_id, *kind.meeting(endpoint), "--no-python"]
            arguments += [str(self.script), str(self.pipe)]
            self.agents[number] = kind.start(self, number, arguments, environment)
        self.workers = {}

    def host(self, number):
        return self.hosts.network.hosts[f"node{number}"]

    def hear(self, count, limit):
        """Waits for the workers of a group of this size. Returns the time at which the last was heard, or None."""
        deadline, heard, pending = time.monotonic() + limit, {}, b""
        while len(heard) < count:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.reader], [], [], left)[0]:
                return None
            pending += os.read(self.reader, 65536)
            *lines, pending = pending.split(b"\n")
            for line in lines:
                rank, node, process, world = map(int, line.split())
                if world == count:
                    heard[node] = (rank, process)
        self.workers = heard
        return time.monotonic()

    def bystander(self):
        """A node that neither serves nor has rank 0."""
        return next(node for node, (rank, _) in sorted(self.workers.items(), reverse=True) if node and rank)

    def kill_worker(self, node):
        os.kill(self.workers[node][1], signal.SIGKILL)

    def kill_agent(self, node):
        os.kill(self.agents[node], signal.SIGKILL)

    def vanish(self, node):
        self.cut.append(f"node{node}")
        self.hosts.network.unplug(self.cut[-1])

    def said(self):
        logs = sorted(self.directory.glob("*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-1500:]}" for log in logs)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for number in range(self.nodes):
            self.host(number).kill()
        for process in self.children:
            process.wait()
        for name in self.cut:
            self.hosts.network.plug(name)
        os.close(self.reader)
        with contextlib.suppress(OSError):
            self.pipe.unlink()
