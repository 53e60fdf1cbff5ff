"""Our EtcdStore against the one of PyTorch, on the same etcd. Ours runs in Rust, as `rallypoint bench store`;
PyTorch's needs etcd's second API, which etcd 3.5 has if it is asked for."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid

import etcd
from servers import HOST, TARGET, free_port

from . import builds
from .report import OURS, STOCK

# As in `rallypoint bench store`.
KEYS = (10, 1000)
ADDING = (1, 32, 128)


class Etcd:
    """A real etcd, 3.5 unless it is given, in a directory of its own. 3.5 can have both of its APIs."""

    def __init__(self, program=None, v2=True):
        program = program or os.environ.get("RALLYPOINT_ETCD_3_5", TARGET / "tools" / "etcd-3.5" / "etcd")
        self.v2 = v2
        self.directory = tempfile.mkdtemp(prefix="rallypoint-bench-")
        self.port, peer_port = free_port(), free_port()
        url, peer_url = f"http://{HOST}:{self.port}", f"http://{HOST}:{peer_port}"
        self.process = subprocess.Popen(
            [
                program, *(["--enable-v2"] if v2 else []), "--data-dir", self.directory, "--log-level", "error",
                "--listen-client-urls", url, "--advertise-client-urls", url,
                "--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url,
                "--initial-cluster", f"default={peer_url}",
            ]
        )  # fmt: skip
        self.wait_until_ready()

    def wait_until_ready(self):
        deadline = time.monotonic() + 60
        while True:
            try:
                if self.v2:
                    return etcd.Client(host=HOST, port=self.port).write("/ready", "")
                return urllib.request.urlopen(f"http://{HOST}:{self.port}/health", timeout=10).close()
            except (etcd.EtcdException, OSError):
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    sys.exit("etcd did not start; what it said is above")
                time.sleep(0.05)

    def stop(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def measure(report, workers, rounds, say, calls=200):
    server = Etcd()
    try:
        for number in range(rounds):
            say(f"EtcdStore, round {number + 1} of {rounds}")
            takes = [lambda: ours(report, server.port, calls), lambda: stock(report, workers, server.port, calls)]
            # Now the one first, now the other.
            for take in takes if number % 2 else takes[::-1]:
                take()
    finally:
        server.stop()


def add(report, side, what, median_us):
    report.add(f"EtcdStore {what}, ms", side, median_us / 1e3)


def ours(report, port, calls):
    command = [builds.rallypoint(), "bench", "store", "--endpoint", f"{HOST}:{port}", "--calls", str(calls), "--json"]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=600).stdout
    for row in map(json.loads, output.splitlines()):
        add(report, OURS, row["what"], row["median_us"])


def stock(report, workers, port, calls):
    def prefix():
        return f"/bench/{uuid.uuid4().hex}"

    def median_of(job, *arguments):
        ((median, _p99),) = workers.run(1, job, port, prefix(), *arguments)
        return median

    add(report, STOCK, "set", median_of("etcd_set", calls))
    for keys in KEYS:
        add(report, STOCK, f"get, {keys} keys", median_of("etcd_get", keys, calls // 4))
    add(report, STOCK, "get, set by another", median_of("etcd_wait", calls // 10))
    for clients in ADDING:
        processes = min(clients, len(workers.processes))
        times = []
        for _ in range(3):
            reports = workers.run(processes, "etcd_add", port, prefix(), clients // processes)
            sums, begun, ended = zip(*reports)
            assert sorted(sum(sums, [])) == list(range(1, clients + 1))
            times.append(max(ended) - min(begun))
        add(report, STOCK, f"add, {clients} at once", statistics.median(times) * 1e6)
