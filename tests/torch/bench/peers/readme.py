"""The few figures that the README shows."""

from . import machine, tables
from .pages import picture
from .parts import ALL, forming, launcher, recovery, server

PARTS = (forming, recovery, launcher, server)


def is_complete(results):
    """Whether all parts that the README shows were measured, if not in one run."""
    return all(part.NAME in results.parts for part in PARTS)


def rows(results):
    """`(part, words, row, ours, peers)`: a row of a part, its sides that are ours, and those of others."""
    a, b, d, e = (results.parts[part.NAME] for part in PARTS)
    found = []
    beside = a.table(forming.PROCESSES)
    for row in beside:
        # Some tens of nodes, and the most.
        if 16 < row["x"] <= 128 or row is beside[-1]:
            peers = [forming.STOCK[backend] for backend in ("c10d", "etcd")]
            found.append((forming, f"{row['what']} form a group", row, forming.OURS, peers))
    most = max(a.table(forming.ONE), key=lambda one: one["x"])
    found.append((forming, f"{most['what']}, all in one process, form a group", most, forming.OURS, []))
    for scenario in (recovery.WORKER, recovery.AGENT, recovery.HOST):
        words = f"{scenario}: new workers on all of 4 nodes that are left"
        row = next((row for row in b.table(scenario) if row["what"] == "4 nodes"), None)
        found += [(recovery, words, row, recovery.RUN, [recovery.C10D])] if row else []
    for row in d.table(launcher.TABLE):
        found.append((launcher, row["what"], row, launcher.OURS, [launcher.STOCK]))
    for row in e.table(server.TIME):
        for ours in server.OURS:
            words = f"server: {row['what']}, {ours.removeprefix('ours, ')}"
            found.append((server, words, row, ours, [server.ETCD_3_5]))
    return found


def content(results, command):
    """The region. `command` tells how a part was measured."""
    found = rows(results)
    lines = ["| medians (lowest–highest) | rallypoint | others | command |", "|---|--:|--:|---|"]
    for module, words, row, ours, peers in found:
        theirs = ", ".join(f"{tables.cell_text(row, peer, [])} ({peer})" for peer in peers) or "not tried"
        how = command(module, results.parts[module.NAME])
        lines.append(f"| {words} | {tables.cell_text(row, ours, [])} | {theirs} | `{how}` |")
    lost = []
    for _, words, row, ours, peers in found:
        lost += tables.losses([{**row, "what": words}], [ours], [ours, *peers])
    plots = "".join(
        picture(name, words, "docs/benchmarks") + "\n"
        for name, words in (
            ("forming", "Time to form a group, by number of nodes"),
            ("recovery", "From a failure to new workers on all nodes that are left"),
        )
    )
    return "\n\n".join(["\n".join(lines), tables.lost_sentence(lost), elsewhere(results), *sources(results), plots])


def elsewhere(results):
    """In how many of all rows a peer is better."""
    count = lost = 0
    for module in ALL:
        if module.NAME in results.parts and hasattr(module, "compared"):
            found, ours, sides = module.compared(results.parts[module.NAME])
            count += sum(tables.has_peers(row, ours, sides) for row in found)
            lost += len(tables.losses(found, ours, sides))
    return f"Of all {count} rows with a peer in [Benchmarks](docs/benchmarks.md), a peer is better in {lost}."


def sources(results):
    """On what the figures were measured; in one sentence if all were in one run."""
    found = {}
    for module in PARTS:
        found.setdefault(machine.sentence(results.parts[module.NAME].measured), []).append(module.TITLE)
    if len(found) == 1:
        return list(found)
    return [f"{', '.join(titles)}: {sentence}" for sentence, titles in found.items()]
