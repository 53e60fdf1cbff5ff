"""Part e: what a put and a get cost the server, under a load generator that is nobody's."""

import contextlib
import os
import re
import tempfile
import urllib.request

from servers import HOST, TARGET, ServerProcess

from bench import builds
from bench.etcd_store import Etcd

from .. import charts, h2load, tables
from ..processor import processor_time

LETTER, NAME, TITLE = "e", "server", "The server"
MEMORY, DISK, ETCD_3_5, ETCD_3_6 = "ours, memory", "ours, disk", "etcd 3.5", "etcd 3.6"
OURS = [MEMORY, DISK]
SIDES = [MEMORY, DISK, ETCD_3_5, ETCD_3_6]
CALLS = {"Put": "put", "Range": "get"}
TIME, RATE = "time", "rate"

PLANS = {"smoke": (1, 4_000), "quick": (2, 20_000), "default": (3, 60_000), "long": (11, 200_000)}
ESTIMATES = {"smoke": 6, "quick": 12, "default": 45, "long": 500}


class Ours(ServerProcess):
    def __init__(self, *options):
        super().__init__([builds.rallypoint(), "serve", "--listen", f"{HOST}:0", "--stop-at-eof", *options])


def etcds():
    """The programs of the etcds; None where none is named."""
    return {
        ETCD_3_5: os.environ.get("RALLYPOINT_ETCD_3_5") or str(TARGET / "tools" / "etcd-3.5" / "etcd"),
        ETCD_3_6: os.environ.get("RALLYPOINT_ETCD_3_6") or None,
    }


def servers(stack, directory):
    """All servers of the comparison; instead of one that cannot run, why not."""
    found = {
        MEMORY: stack.enter_context(Ours()),
        DISK: stack.enter_context(Ours("--data-dir", os.path.join(directory, "data"))),
    }
    for side, program in etcds().items():
        if program is None:
            found[side] = "not measured: `RALLYPOINT_ETCD_3_6` names none"
            continue
        server = Etcd(program, v2=False)
        stack.callback(server.stop)
        found[side] = server
    return found


def measure(part, context):
    rounds, count = PLANS[context.mode]
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="rallypoint-bench-"))
        arms = servers(stack, directory)
        for side, server in arms.items():
            if isinstance(server, str):
                for what in CALLS.values():
                    part.note(TIME, f"processor time for a {what}", side, server)
                    part.note(RATE, f"{what}s a second", side, server, "", "more")
            else:
                for call in h2load.REQUESTS:
                    h2load.run(server.port, call, count // 10, directory)
        running = {side: server for side, server in arms.items() if not isinstance(server, str)}
        for number in range(rounds):
            for call, what in CALLS.items():
                for side, server in context.turns(number, running.items()):
                    context.step(f"{what}, {side}, round {number + 1} of {rounds}", number / rounds)
                    before, done = processor_time(server.process.pid), handled(server.port, call)
                    rate = h2load.run(server.port, call, count, directory)
                    used = processor_time(server.process.pid) - before
                    # h2load sees HTTP's status only; a call that the server refused has a good one, too.
                    assert handled(server.port, call) - done >= count, f"{side} refused calls of {call}"
                    part.add(TIME, f"processor time for a {what}", side, used / count)
                    part.add(RATE, f"{what}s a second", side, rate, "", "more")


def handled(port, call):
    """How many of these calls the server has answered well, as it tells itself, ours under etcd's names."""
    with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=10) as answer:
        page = answer.read().decode()
    lines = (line for line in page.splitlines() if line.startswith("grpc_server_handled_total{"))
    good = (line for line in lines if 'grpc_code="OK"' in line and f'grpc_method="{call}"' in line)
    return sum(float(re.split(r"\s+", line)[-1]) for line in good)


def plots(part):
    rows = [
        (row["what"], {side: cell["samples"] for side, cell in row["cells"].items() if cell["samples"]})
        for row in part.table(TIME)
    ]

    sides = [side for side in SIDES if any(side in cells for _, cells in rows)]

    def draw(theme):
        return charts.bars(
            theme, "Processor time of the server for a request", "Medians of rounds in turns, by h2load.",
            rows, sides, "processor time", log=False,
        )  # fmt: skip

    return {"server": draw}


def compared(part):
    return part.table(TIME) + part.table(RATE), OURS, SIDES


def blocks(part):
    return [
        f"`h2load` sends puts of one key with a value of 64 bytes, or gets of it, on {h2load.CONNECTIONS} "
        f"connections of {h2load.STREAMS} streams. It shares the machine with the server, so a rate also depends "
        "on the load generator; the processor time does not. etcd always writes to disk.",
        *tables.comparison(*compared(part)),
    ]
