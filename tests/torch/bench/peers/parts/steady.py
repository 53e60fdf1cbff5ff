"""Part f: what a healthy group costs while nothing happens."""

import json
import re
import subprocess
import time
import uuid

from servers import HOST

from bench import builds

from .. import tables
from ..hosts import Hosts
from ..processor import processor_time

LETTER, NAME, TITLE = "f", "steady", "A healthy group"
OURS, C10D = "ours", "PyTorch `c10d`"
SIDES = [OURS, C10D]
TABLE = "steady"

# Sizes, those at which c10d is beside, and the seconds that are looked at.
PLANS = {
    "smoke": ([4, 1024], 4, 2),
    "quick": ([16, 1024], 16, 10),
    "default": ([64, 1024], 64, 15),
    "long": ([64, 1024, 4096], 64, 60),
}
ESTIMATES = {"smoke": 15, "quick": 35, "default": 70, "long": 300}


class Look:
    """The counters of the loopback of a host that nobody else uses."""

    def __init__(self, host):
        said = subprocess.run(host.enter("cat", "/proc/net/dev"), capture_output=True, text=True, check=True).stdout
        fields = re.search(r"lo:\s*(.*)", said)[1].split()
        self.time, self.bytes, self.packets = time.monotonic(), int(fields[0]), int(fields[1])


def measure(part, context):
    sizes, beside, seconds = PLANS[context.mode]
    part.facts["seconds"] = seconds
    with Hosts(1) as hosts:
        host = hosts.network.hosts["node0"]
        for index, size in enumerate(sizes):
            context.step(f"{size:,} nodes, ours", index / len(sizes))
            ours(part, host, size, seconds)
            if size == beside:
                context.step(f"{size:,} nodes, c10d", (index + 0.5) / len(sizes))
                c10d(part, context, host, size, seconds)
            else:
                for what in ("packets a second", "bytes a second on the wire"):
                    part.note(TABLE, f"{size:,} nodes: {what}", C10D, "not tried")


def note_looks(part, size, side, before, after):
    time = after.time - before.time
    part.add(TABLE, f"{size:,} nodes: packets a second", side, (after.packets - before.packets) / time, "")
    part.add(TABLE, f"{size:,} nodes: bytes a second on the wire", side, (after.bytes - before.bytes) / time, "B/s")


def ours(part, host, size, seconds):
    serve = host.enter(builds.rallypoint(), "serve", "--listen", f"{HOST}:2379", "--stop-at-eof")
    bench = host.enter(builds.rallypoint(), "bench", "rendezvous", "--nodes", size, "--idle", seconds + 4,
                       "--lease-ttl", 10, "--stores", "--endpoint", f"{HOST}:2379", "--json")  # fmt: skip
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(serve, **pipes) as server:
        try:
            assert server.stdout.readline().startswith("listening on "), "the server did not start"
            with subprocess.Popen(bench, stdout=subprocess.PIPE, text=True) as nodes:
                assert nodes.stdout.readline(), "the group did not form"
                time.sleep(2)
                before, used = Look(host), processor_time(server.pid)
                time.sleep(seconds)
                after, used = Look(host), processor_time(server.pid) - used
                idle = json.loads(nodes.stdout.readline())
        finally:
            # In good order: one that was killed would make the next one wait for its leases.
            server.stdin.close()
            server.wait(60)
    note_looks(part, size, OURS, before, after)
    requests = idle["requests"] / idle["idle_seconds"]
    part.add(TABLE, f"{size:,} nodes: requests a second", OURS, requests, "")
    part.note(TABLE, f"{size:,} nodes: requests a second", C10D, "not counted", "")
    # Two significant digits need more ticks than a small group uses.
    part.add(TABLE, f"{size:,} nodes: processor of the server", OURS, 100 * used / (after.time - before.time), "%")
    part.note(TABLE, f"{size:,} nodes: processor of the server", C10D, "not told from node 0's", "%")
    if size == 1024:
        part.facts["server_share_1024"] = used / (after.time - before.time)
        part.facts["requests_1024"] = requests


def c10d(part, context, host, size, seconds):
    formed = context.crew.form(
        backend="c10d", endpoint=f"{HOST}:29400", nodes=size, run_id=uuid.uuid4().hex, limit=60,
        keeper=host.keeper.pid, stay=True,
    )  # fmt: skip
    try:
        if formed is None:
            part.note(TABLE, f"{size:,} nodes: packets a second", C10D, "no group in 60 s", "")
            return
        time.sleep(2)
        before = Look(host)
        time.sleep(seconds)
        note_looks(part, size, C10D, before, Look(host))
    finally:
        context.crew.ask("dismiss")


def plots(part):
    return {}


def compared(part):
    return part.table(TABLE), [OURS], SIDES


def blocks(part):
    return [
        "A group with leases of 10 s whose members hold their connections to rank 0, in a network of its own; the "
        "bytes are those of its loopback, headers and acknowledgements included, "
        f"during {part.facts['seconds']} s. The nodes of `c10d` ask every 0.1 s whether another node waits, as "
        "torchrun does.",
        *tables.comparison(*compared(part)),
    ]
