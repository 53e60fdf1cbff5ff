"""Markdown tables of results."""

from .figures import best, digits, median, overlap, quantity, scale, times


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
    text = quantity(cell["samples"], row["unit"]) + (" (1 run)" if len(cell["samples"]) == 1 else "")
    if side in best(_samples(row, compared), row["better"], row["unit"]):
        text = f"**{text}**"
    return f"{text}, {cell['note']}" if cell["note"] else text


def has_peers(row, ours, sides):
    """Whether something is compared in this row."""
    return bool(_samples(row, [side for side in sides if side not in ours]))


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
    return "" if ratio is None else digits(ratio)


def losses(rows, ours, sides):
    """Sentences about the rows in which a peer is better than one of ours, or than all of ours."""
    peers = [side for side in sides if side not in ours]
    found = []
    for row in rows:
        theirs = leader(row, peers)
        compared = [side for side in ours if side in row["cells"]]
        if theirs is None:
            continue
        beaten = [
            side for side in compared if side not in best(_samples(row, [side, theirs]), row["better"], row["unit"])
        ]
        if not beaten:
            continue
        against = "" if beaten == compared else f" against {' and '.join(beaten)}"
        samples = [row["cells"][side]["samples"] for side in beaten]
        near = all(one and overlap(one, row["cells"][theirs]["samples"]) for one in samples)
        found.append(f"{row['what']}: {theirs} wins{against}{', within the spread' if near else ''}")
    return found


def lost_sentence(lost):
    return "A peer is better in these rows: " + "; ".join(lost) + "." if lost else "No peer is better in any row."


def comparison(rows, ours, sides):
    """A table, and the rows in which a peer is better."""
    return [table(rows, ours, sides), lost_sentence(losses(rows, ours, sides))]


def samples_table(rows):
    """Every row and side with all its samples' summary: median, lowest, highest, number."""
    lines = ["| table | row | side | median | lowest | highest | unit | samples | note |"]
    lines.append("|---|---|---|--:|--:|--:|---|--:|---|")
    for row in rows:
        for side, cell in row["cells"].items():
            values = cell["samples"]
            numbers, unit = ["", "", ""], row["unit"]
            if values:
                factor, unit = scale(median(values), unit)
                numbers = [digits(number / factor) for number in (median(values), min(values), max(values))]
            words = [row["table"], row["what"], side, *numbers, unit, str(len(values)), cell["note"]]
            lines.append("| " + " | ".join(words) + " |")
    return "\n".join(lines) + "\n"
