"""Part d: how long a launcher takes to start and end, and its memory, as `make bench-launcher` measures them."""

from launchers import Ours, Stock

from bench import builds
from bench import launcher as bench

from .. import tables

LETTER, NAME, TITLE = "d", "launcher", "Starting"
OURS, STOCK = "`rallypoint run`", "torchrun"
SIDES = [OURS, STOCK]
TABLE = "start"

MEASURES = {
    "start to a worker's first line, 4 workers": (bench.first_line, "s", 1e-3),
    "start to end, 4 workers of `true`": (bench.whole_job, "s", 1e-3),
    "peak memory of the launcher": (bench.peak_memory, "B", 2**20),
}
PLANS = {"smoke": 1, "quick": 1, "default": 3, "long": 15}
ESTIMATES = {"smoke": 8, "quick": 10, "default": 25, "long": 110}


def measure(part, context):
    rounds = PLANS[context.mode]
    kinds = [(OURS, Ours(builds.profile)), (STOCK, Stock())]
    with bench.Place() as place:
        for number in range(rounds):
            context.step(f"round {number + 1} of {rounds}", number / rounds)
            for what, (take, unit, factor) in MEASURES.items():
                for side, kind in context.turns(number, kinds):
                    part.add(TABLE, what, side, take(kind, place) * factor, unit)


def plots(part):
    return {}


def compared(part):
    return part.table(TABLE), [OURS], SIDES


def blocks(part):
    return [
        "Workers are a shell script or `true`, so that the launcher is what is measured.",
        *tables.comparison(*compared(part)),
    ]
