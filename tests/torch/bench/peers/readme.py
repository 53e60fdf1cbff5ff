"""The few figures that the README shows."""

from .figures import quantity
from .pages import picture
from .parts import forming, launcher, recovery, server

PARTS = (forming, recovery, launcher, server)


def is_complete(results):
    """Whether all parts that the README shows were measured, if not in one run."""
    return all(part.NAME in results.parts for part in PARTS)


def cell(part, table, what, side):
    samples = part.samples(table, what, side)
    return quantity(samples, _unit(part, table, what)) if samples else part.noted(table, what, side)


def _unit(part, table, what):
    return next(row["unit"] for row in part.table(table) if row["what"] == what)


def rows(results):
    """`(words, ours, others)`."""
    a, b, d, e = (results.parts[part.NAME] for part in PARTS)
    found = []
    for row in a.table(forming.PROCESSES):
        ours = cell(a, forming.PROCESSES, row["what"], forming.OURS)
        peers = [
            f"{cell(a, forming.PROCESSES, row['what'], forming.STOCK[backend])} (`{backend}`)"
            for backend in ("c10d", "etcd")
        ]
        # Some tens of nodes, and the most.
        if 16 < row["x"] <= 128 or row is a.table(forming.PROCESSES)[-1]:
            found.append((f"{row['what']} form a group", ours, ", ".join(peers)))
    alone = max(a.table(forming.ONE), key=lambda one: one["x"])["what"]
    found.append((f"{alone} form a group", cell(a, forming.ONE, alone, forming.OURS), "not tried"))
    for scenario in (recovery.WORKER, recovery.AGENT, recovery.HOST):
        ours, theirs = (cell(b, scenario, "4 nodes", side) for side in (recovery.RUN, recovery.C10D))
        found.append((f"{scenario}: new workers on all of 4 nodes that are left", ours, f"{theirs} (`c10d`)"))
    for what in launcher.MEASURES:
        ours, theirs = (cell(d, launcher.TABLE, what, side) for side in launcher.SIDES)
        found.append((what, ours, f"{theirs} (torchrun)"))
    for what in server.CALLS.values():
        row = f"processor time for a {what}"
        ours, theirs = (cell(e, server.TIME, row, side) for side in (server.MEMORY, server.ETCD_3_5))
        found.append((f"server, in memory: {row}", ours, f"{theirs} (etcd 3.5, on disk)"))
    return found


def content(results):
    lines = ["| medians (lowest–highest) | rallypoint | others |", "|---|--:|--:|"]
    lines += [f"| {words} | {ours} | {theirs} |" for words, ours, theirs in rows(results)]
    plots = "".join(
        picture(name, words, "docs/benchmarks") + "\n"
        for name, words in (
            ("forming", "Time to form a group, by number of nodes"),
            ("recovery", "From a failure to new workers on all nodes that are left"),
        )
    )
    return "\n".join(lines) + "\n\n" + plots
