"""Part a: how long a group takes to form, ours beside PyTorch's backends, and ours alone with thousands of nodes."""

import json
import subprocess
import uuid

from servers import HOST, Serve

from bench import builds
from bench.etcd_store import Etcd

from .. import charts, tables
from ..processor import processor_time

LETTER, NAME, TITLE = "a", "forming", "Forming a group"

# Each node a process with a handler, the same for all columns.
PROCESSES = "processes"
# All nodes in one process, which is how ten thousand fit on a machine.
ONE = "one process"
COST = "cost"
SERVER_TIME = "processor time of the server, forming again"
# The clock of processor time ticks every 10 ms, which a smaller group does not take.
ENOUGH = 1000

OURS, ON_ETCD = "ours, own server", "ours, etcd 3.5"
STOCK = {"c10d": "PyTorch `c10d`", "etcd": "PyTorch `etcd`", "etcd-v2": "PyTorch `etcd-v2`"}
SIDES = [OURS, ON_ETCD, *STOCK.values()]

PLANS = {
    # sizes beside the peers; those measured in several rounds; rounds; limit of a group; sizes alone; rounds alone
    "smoke": ([2, 4], 4, 1, 60, [4, 1024], 1),
    "quick": ([2, 16, 48], 16, 1, 30, [2, 64, 1024], 3),
    "default": ([2, 16, 64, 128, 256], 128, 3, 60, [2, 32, 256, 1024, 4096, 10000], 3),
    "long": ([2, 8, 32, 64, 128, 192, 256], 256, 3, 150, [2, 32, 256, 1024, 4096, 10000], 5),
}
ESTIMATES = {"smoke": 20, "quick": 45, "default": 430, "long": 2600}


def measure(part, context):
    sizes, repeated, rounds, limit, alone, rounds_alone = PLANS[context.mode]
    etcd = Etcd()
    try:
        beside(part, context, etcd, sizes, repeated, rounds, limit)
        ours_alone(part, context, etcd, alone, rounds_alone)
    finally:
        etcd.stop()


def beside(part, context, etcd, sizes, repeated, rounds, limit):
    endpoint = f"{HOST}:{etcd.port}"
    arms = [
        (OURS, "rallypoint", None), (ON_ETCD, "etcd-v3", endpoint),
        *((side, backend, None if backend == "c10d" else endpoint) for backend, side in STOCK.items()),
    ]  # fmt: skip
    none_at = {}
    # About the seconds that each size takes.
    weights = [rounds * (1.5 + size / 20) if size <= repeated else 5 + size**2 / 1200 for size in sizes]
    for index, size in enumerate(sizes):
        for number in range(rounds if size <= repeated else 1):
            for side, backend, where in context.turns(number, arms):
                what = f"{size:,} nodes"
                if side in none_at:
                    if size > none_at[side]:
                        part.note(PROCESSES, what, side, f"not tried: none with {none_at[side]}", x=size)
                    continue
                context.step(f"{size} nodes, {side}", 0.75 * sum(weights[:index]) / sum(weights))
                seconds = context.crew.form(
                    backend=backend, endpoint=where or context.free_endpoint(), nodes=size,
                    run_id=f"bench-{uuid.uuid4().hex}", limit=limit,
                )  # fmt: skip
                if seconds is None:
                    none_at[side] = size
                    part.note(PROCESSES, what, side, f"none in {limit} s", x=size)
                    part.facts.setdefault("limit", limit)
                else:
                    part.add(PROCESSES, what, side, seconds, x=size)


def ours_alone(part, context, etcd, sizes, rounds):
    for index, size in enumerate(sizes):
        what = f"{size:,} nodes"
        with Serve(builds.profile) as server:
            arms = [(OURS, server.port, server.process.pid), (ON_ETCD, etcd.port, etcd.process.pid)]
            for number in range(rounds):
                for side, port, pid in context.turns(number, arms):
                    share = 0.75 + 0.25 * (index + number / rounds) / len(sizes)
                    context.step(f"{what} in one process, {side}, round {number + 1} of {rounds}", share)
                    try:
                        first, used = run(port, pid, size)
                    except RuntimeError as error:
                        part.note(ONE, what, side, "failed", x=size)
                        context.say(f"{what}, {side}: {error}")
                        continue
                    part.add(ONE, what, side, first["seconds"], x=size)
                    if side == OURS:
                        part.add(COST, "requests", what, first["requests_per_node"], "")
                        part.add(COST, "messages", what, first["messages_per_node"], "")
                        part.add(COST, "bytes", what, first["bytes_per_node"], "B")
                    if used is not None:
                        part.add(COST, f"{SERVER_TIME}, {side}", what, used / size)


def run(port, pid, nodes):
    """The first group of fresh nodes, and the processor time of the server while the same nodes form the next one, if
    they are enough. The beginning of the first one is not seen from here: nodes connect before."""
    again = nodes >= ENOUGH
    command = [builds.rallypoint(), "bench", "rendezvous", "--nodes", str(nodes), "--rounds", "2" if again else "1",
               "--endpoint", f"{HOST}:{port}", "--json"]  # fmt: skip
    rows, marks = [], []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stdout:
                marks.append(processor_time(pid))
                rows.append(json.loads(line))
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise RuntimeError(f"rallypoint bench rendezvous ended with {process.returncode}")
    return rows[0], marks[1] - marks[0] if again else None


def points(part, table, side):
    rows = [row for row in part.table(table) if row["cells"].get(side, {}).get("samples")]
    return [(row["x"], row["cells"][side]["samples"]) for row in sorted(rows, key=lambda row: row["x"])]


def plots(part):
    series = {side: points(part, PROCESSES, side) for side in SIDES}
    dashed = {f"{side}, all nodes in one process": side for side in (OURS, ON_ETCD)}
    for name, side in dashed.items():
        series[name] = points(part, ONE, side)
    series = {name: found for name, found in series.items() if found}
    none = []
    for side in SIDES:
        for row in part.table(PROCESSES):
            note = row["cells"].get(side, {}).get("note", "")
            if note.startswith("none in"):
                none.append((side, row["x"], part.facts["limit"], note))

    def draw(theme):
        return charts.lines(
            theme, "Time to form a group", "Time by number of nodes, both logarithmic; lines are medians.",
            series, "nodes (logarithmic)", "time (logarithmic)", none=none, dashed=dashed,
        )  # fmt: skip

    return {"forming": draw}


def compared(part):
    return part.table(PROCESSES), [OURS, ON_ETCD], SIDES


def blocks(part):
    ours = [OURS, ON_ETCD]
    sizes = list(dict.fromkeys(size for row in part.table(COST) for size in row["cells"]))
    return [
        "From the first call of `next_rendezvous` to the last rank. Each node is a process with the "
        "handler of its backend, made before the clock starts; all of them and the server share the machine. Ours "
        "runs in the same processes, as a plugin. Names are resolved by `/etc/hosts` alone: PyTorch's client of "
        "stores, which all but `etcd` and `etcd-v2` use, asks for the name of each address that it connects to, and "
        "the time of a name server is not measured here.",
        *tables.comparison(*compared(part)),
        "Ours alone, all nodes in one process (`rallypoint bench rendezvous`), each with a connection and a lease "
        "of its own. Times, requests, messages and bytes are those of the first group of fresh nodes. Processor time "
        f"is that of the next group of the same nodes, from {ENOUGH:,} nodes on:",
        tables.table(part.table(ONE), ours, ours),
        tables.table(part.table(COST), [], sizes, "for each node"),
    ]
