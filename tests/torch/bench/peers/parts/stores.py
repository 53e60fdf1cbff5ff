"""Part c: our stores beside PyTorch's, as `make bench-stores` measures them."""

from bench import agent_store, etcd_store
from bench import report as plain
from bench.workers import Workers

from .. import charts, tables
from ..figures import times

LETTER, NAME, TITLE = "c", "stores", "Stores"
OURS, STOCK = "ours", "PyTorch's"
SIDES = [OURS, STOCK]
TABLE = "stores"

# Rounds, the share of the calls and seconds of each, and the processes of clients.
PLANS = {"smoke": (1, 0.1, 2), "quick": (1, 1, 8), "default": (3, 1, 8), "long": (7, 1, 8)}
ESTIMATES = {"smoke": 15, "quick": 45, "default": 95, "long": 210}

# Units at the end of a row's name, and what they are in ours.
UNITS = {
    ", median µs": (", median", "s", 1e-6), ", p99 µs": (", 99th percentile", "s", 1e-6), ", ms": ("", "s", 1e-3),
    ", MiB": ("", "B", 2**20), ", KiB": ("", "B", 2**10),
}  # fmt: skip


class PartReport:
    """Takes what the benchmark of the stores reports."""

    def __init__(self, part):
        self.part = part

    def add(self, what, side, value, more_is_better=False):
        name, unit, factor = what.replace("/s,", "s a second,"), "", 1
        for ending, (instead, its_unit, its_factor) in UNITS.items():
            if what.endswith(ending):
                name, unit, factor = what.removesuffix(ending) + instead, its_unit, its_factor
        better = "more" if more_is_better else "less"
        side = OURS if side == plain.OURS else STOCK
        self.part.add(TABLE, name, side, value * factor, unit, better)


def measure(part, context):
    rounds, share, processes = PLANS[context.mode]
    report = PartReport(part)
    seen = 0

    def say(what):
        nonlocal seen
        context.step(what, min(0.95, seen / (3 * rounds + 1)))
        seen += 1

    with Workers(processes) as workers:
        agent_store.measure(report, workers, rounds, say, share)
        etcd_store.measure(report, workers, rounds, say, int(200 * share))


def plots(part):
    rows = []
    for row in part.table(TABLE):
        cells = {side: cell["samples"] for side, cell in row["cells"].items() if cell["samples"]}
        if "percentile" in row["what"]:
            continue  # One slow call of a thousand tells more of the machine than of a store.
        if len(cells) == 2 and (ratio := times(cells[OURS], cells[STOCK], row["better"])):
            rows.append((row["what"], {"times better": [ratio]}))

    def draw(theme):
        return charts.bars(
            theme, "Our stores: how many times better than PyTorch's", "Ratios of medians, logarithmic; 1 is equal.",
            rows, ["times better"], "times (logarithmic; left of 1 PyTorch's is better)", unit="", better="more",
            origin=1,
        )  # fmt: skip

    return {"stores": draw}


def compared(part):
    return part.table(TABLE), [OURS], SIDES


def blocks(part):
    return [
        "The same stock PyTorch clients on `AgentStore` and on PyTorch's own server (libuv); then `EtcdStore` in "
        "Rust and PyTorch's in Python on one etcd 3.5, so those ratios include the language. In the row of memory "
        "without clients ours is a program without Python, and PyTorch's is a Python that has imported PyTorch, of "
        "which the store is a small part.",
        *tables.comparison(*compared(part)),
    ]
