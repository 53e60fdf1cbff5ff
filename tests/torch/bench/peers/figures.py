"""Medians and spreads, who wins, and how a number is written."""

import statistics

# Units that are written on a scale of their own: the factor, the digits after it, and the name, largest first.
SCALES = {
    "s": [(1, "s"), (1e-3, "ms"), (1e-6, "µs")],
    "B": [(2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")],
    "B/s": [(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1, "B/s")],
}


def median(samples):
    return statistics.median(samples)


def rounded(value):
    """Two significant digits, or three from ten on: 78,123 is 78,100. More digits than the spread has are noise."""
    if abs(value) >= 10:
        return float(round(value, -max(0, len(str(int(abs(value)))) - 3)))
    return round(value, 1) if abs(value) >= 1 else float(f"{value:.2g}")


def digits(value):
    """A number as it is printed, with commas."""
    value = rounded(value)
    if value == 0:
        return "0"
    if abs(value) >= 10:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"


def scale(value, unit):
    """The factor and the name of the unit in which this value is written."""
    for factor, name in SCALES.get(unit, [(1, unit)]):
        if abs(value) >= factor:
            return factor, name
    return SCALES[unit][-1] if unit in SCALES else (1, unit)


def quantity(samples, unit):
    """The median with its unit, and the lowest and the highest sample if they differ."""
    middle = median(samples)
    factor, name = scale(middle, unit)
    text = f"{digits(middle / factor)} {name}".rstrip()
    low, high = (digits(one / factor) for one in (min(samples), max(samples)))
    return text if low == high else f"{text} ({low}–{high})"


def alike(one, other, unit):
    """Whether two values are the same as they are printed, on the finer of their scales."""
    factor = min(scale(one, unit)[0], scale(other, unit)[0])
    return rounded(one / factor) == rounded(other / factor)


def best(cells, better, unit=""):
    """The sides with the best median, of those that have one. Equal as printed is equal."""
    medians = {side: median(samples) for side, samples in cells.items() if samples}
    if len(medians) < 2:
        return set()
    wanted = (max if better == "more" else min)(medians.values())
    return {side for side, value in medians.items() if alike(value, wanted, unit)}


def overlap(one, other):
    """Whether the spreads of two sides have something in common, so that a median says little."""
    return min(one) <= max(other) and min(other) <= max(one)


def times(ours, theirs, better):
    """How many times better ours is; None where a difference of two measurements is nothing, or less."""
    ours, theirs = median(ours), median(theirs)
    if ours <= 0 or theirs <= 0:
        return None
    return ours / theirs if better == "more" else theirs / ours
