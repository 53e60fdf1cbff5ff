"""Markdown tables of results."""

from .figures import best, median, overlap, quantity, times


def table(rows, ours, sides, heading=""):
    """A table with a column for each side. If there are peers beside ours, the best of each row is in bold, and the
    last column says how many times better the best of ours is than the best of the others."""
    peers = [side for side in sides if side not in ours]
    compared = bool(ours) and any(_samples(row, peers) for row in rows)
    columns = [*sides, "times"] if compared else sides
    lines = [f"| {heading} | " + " | ".join(columns) + " |", "|---|" + "--:|" * len(columns)]
    for row in rows:
        cells = [cell_text(row, side, sides if compared else []) for side in sides]
        if compared:
            cells.append(_times(row, ours, peers))
        lines.append(f"| {row['what']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _samples(row, sides):
    return {side: row["cells"][side]["samples"] for side in sides if row["cells"].get(side, {}).get("samples")}


def cell_text(row, side, compared):
    """What a cell says; in bold if its side is the best of those that are compared."""
    cell = row["cells"].get(side)
    if cell is None:
        return ""
    if not cell["samples"]:
        return cell["note"]
    text = quantity(cell["samples"], row["unit"])
    if side in best(_samples(row, compared), row["better"]):
        text = f"**{text}**"
    return f"{text}, {cell['note']}" if cell["note"] else text


def leader(row, sides):
    """The side with the best median."""
    found = _samples(row, sides)
    pick = max if row["better"] == "more" else min
    return pick(found, key=lambda side: median(found[side])) if found else None


def _times(row, ours, peers):
    mine, theirs = leader(row, ours), leader(row, peers)
    if mine is None or theirs is None:
        return ""
    cells = row["cells"]
    ratio = times(cells[mine]["samples"], cells[theirs]["samples"], row["better"])
    if ratio is None:
        return ""
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.1f}"


def losses(rows, ours, sides):
    """Sentences about the rows in which a peer is better than the best of ours."""
    peers = [side for side in sides if side not in ours]
    found = []
    for row in rows:
        mine, theirs = leader(row, ours), leader(row, peers)
        if theirs is None or (mine is not None and mine in best(_samples(row, [mine, theirs]), row["better"])):
            continue
        sentence = f"{row['what']}: {theirs} wins"
        if mine and overlap(row["cells"][mine]["samples"], row["cells"][theirs]["samples"]):
            sentence += ", within the spread"
        found.append(sentence)
    return found


def samples_table(rows):
    """Every row and side with all its samples' summary: median, lowest, highest, number."""
    lines = ["| | side | unit | median | lowest | highest | samples |", "|---|---|---|--:|--:|--:|--:|"]
    for row in rows:
        for side, cell in row["cells"].items():
            values = cell["samples"]
            if values:
                numbers = [median(values), min(values), max(values)]
                text = " | ".join(f"{number:.4g}" for number in numbers)
                lines.append(f"| {row['what']} | {side} | {row['unit']} | {text} | {len(values)} |")
            else:
                lines.append(f"| {row['what']} | {side} | {row['unit']} | {cell['note']} | | | 0 |")
    return "\n".join(lines) + "\n"
