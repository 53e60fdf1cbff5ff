"""Part g: what a hundred thousand nodes would cost, and where one server ends."""

import json
import subprocess

from bench import builds

from .. import charts, tables
from ..figures import digits, median, quantity
from . import forming

LETTER, NAME, TITLE = "g", "scale", "A hundred thousand nodes"
TABLE = "model"

PLANS = {
    "smoke": ([1024, 10_000], 1),
    "quick": ([1024, 10_000, 100_000], 1),
    "default": ([1024, 10_000, 100_000], 3),
    "long": ([1024, 10_000, 100_000, 300_000], 3),
}
ESTIMATES = {"smoke": 6, "quick": 25, "default": 50, "long": 300}
AGAIN = "form again"
PHASES = {"round 1": "form", "round 2": AGAIN}


def measure(part, context):
    sizes, rounds = PLANS[context.mode]
    for number in range(rounds):
        for index, size in enumerate(sizes):
            context.step(f"{size:,} nodes, round {number + 1} of {rounds}", (number + index / len(sizes)) / rounds)
            command = [builds.rallypoint(), "bench", "scale", "--nodes", str(size), "--json"]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=900).stdout
            for phase in map(json.loads, output.splitlines()):
                take(part, size, phase)


def take(part, size, phase):
    column = f"{size:,} nodes"
    if phase["phase"] == "idle":
        part.add(TABLE, "renew a lease: store, a node", column, phase["server_seconds"] / size)
    if name := PHASES.get(phase["phase"]):
        part.add(TABLE, f"{name}: store", column, phase["server_seconds"])
        part.add(TABLE, f"{name}: all nodes", column, phase["node_seconds"])
        part.add(TABLE, f"{name}: requests a node", column, phase["requests"] / size, "")
        part.add(TABLE, f"{name}: bytes", column, phase["bytes"], "B")
        part.add(TABLE, f"{name}: largest message", column, phase["largest_message"], "B")
        part.add(TABLE, f"{name}: history and keys in the store", column, phase["store_bytes"], "B")


def sizes(part):
    columns = dict.fromkeys(column for row in part.table(TABLE) for column in row["cells"])
    return {number(column): column for column in columns}


def number(column):
    """Of a column such as `10,000 nodes`."""
    return int(column.split()[0].replace(",", ""))


def model(part):
    """The store's time to form again, by number of nodes."""
    return [(size, part.samples(TABLE, f"{AGAIN}: store", column)) for size, column in sorted(sizes(part).items())]


def measured(results):
    """The processor time of the whole server to form again, by number of nodes; from the part that measures it."""
    part = results.parts.get(forming.NAME)
    rows = part.table(forming.COST) if part else []
    found = [row for row in rows if row["what"] == f"{forming.SERVER_TIME}, {forming.OURS}"]
    cells = found[0]["cells"] if found else {}
    return [
        (size, [one * size for one in cells[column]["samples"]])
        for size, column in ((number(column), column) for column in cells)
    ]


def plots(part, results):
    series = {"whole server, measured": measured(results), "store and messages alone, by the model": model(part)}
    series = {name: points for name, points in series.items() if points}

    def draw(theme):
        return charts.lines(
            theme, "Processor time of the server to form a group again",
            "Seconds by number of nodes, both logarithmic.",
            series, "nodes (logarithmic)", "processor time (logarithmic)",
        )  # fmt: skip

    return {"scale": draw}


def blocks(part, results):
    columns = [column for _, column in sorted(sizes(part).items())]
    return [
        "The real state machines of the rendezvous on the real store, in one process without a network "
        "(`rallypoint bench scale`). Names and documents are as long as those of a cluster, and every message is "
        "encoded and decoded as on the wire. HTTP/2, connections and TLS are not in it: those are in the measured "
        "server, which needs several times as much.",
        tables.table(part.table(TABLE), [], columns, "processor time and sizes"),
        *ends(part, results),
    ]


def ends(part, results):
    """Where one server ends, computed from what was measured."""
    sentences = []
    points = measured(results)
    if points:
        size, samples = points[-1]
        each = median(samples) / size
        store = part.samples(TABLE, f"{AGAIN}: store", "100,000 nodes")
        of_which = f", of which the store takes {quantity(store, 's')} by the model" if store else ""
        if each > 0:
            sentences.append(
                f"**Forming**: {size:,} nodes that form again take {quantity([each], 's')} of the measured server's "
                f"processor time each. If that stays so, 100,000 nodes take {quantity([each * 100_000], 's')} on one "
                f"core{of_which}. A group within a minute ends at about {digits(60 / each)} nodes."
            )
    steady = results.parts.get("steady")
    if steady and steady.facts.get("server_share_1024"):
        share = steady.facts["server_share_1024"] / 1024
        sentences.append(
            f"**Staying**: with leases of 10 s a healthy node takes {share * 1e6:,.0f} µs of the server's "
            f"processor a second. 100,000 nodes take {share * 100_000:.2f} cores; one core ends at about "
            f"{digits(1 / share)} nodes. A longer `lease_ttl` moves that in proportion."
        )
    sentences.append(
        "**Connections**: every node holds one, so the limit of open files of the server has to be above the "
        "number of nodes. The largest message is the coordinator's read of all members; it is one message, and "
        "grows with the group."
    )
    return sentences
