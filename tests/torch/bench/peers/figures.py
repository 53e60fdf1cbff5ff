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


def digits(value):
    """Two significant digits, or all in front of the point, with commas."""
    if value == 0:
        return "0"
    if abs(value) >= 10:
        # 78,123 is 78,100: more digits than the spread has are noise.
        places = max(0, len(str(int(abs(value)))) - 3)
        return f"{round(value, -places):,.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"


def scale(value, unit):
    """The factor and the name of the unit in which this value is written."""
    for factor, name in SCALES.get(unit, [(1, unit)]):
        if abs(value) >= factor:
            return factor, name
    return SCALES[unit][-1] if unit in SCALES else (1, unit)


def quantity(samples, unit):
    """The median with its unit, and the lowest and the highest sample if there are several."""
    middle = median(samples)
    factor, name = scale(middle, unit)
    text = f"{digits(middle / factor)} {name}".rstrip()
    low, high = (digits(one / factor) for one in (min(samples), max(samples)))
    return text if low == high else f"{text} ({low}–{high})"


def best(cells, better):
    """The sides with the best median, of those that have one. Equal as written is equal."""
    medians = {side: median(samples) for side, samples in cells.items() if samples}
    if len(medians) < 2:
        return set()
    wanted = (max if better == "more" else min)(medians.values())
    return {side for side, value in medians.items() if f"{value:.2g}" == f"{wanted:.2g}"}


def overlap(one, other):
    """Whether the spreads of two sides have something in common, so that a median says little."""
    return min(one) <= max(other) and min(other) <= max(one)


def times(ours, theirs, better):
    """How many times better ours is."""
    ours, theirs = median(ours), median(theirs)
    if not ours or not theirs:
        return None
    return ours / theirs if better == "more" else theirs / ours
