"""The plots: lines on logarithmic axes, and horizontal bars."""

from .figures import digits, median, scale
from .svg import Drawing, LinearScale, LogScale, decade_limits

WIDTH = 840


def legend(drawing, styles, y, dashed=None):
    """Names with the colours of their lines, or of their bars if nothing says what is dashed, in as many rows as they
    need. Returns where the next thing may begin."""
    x = 24
    for name, number in styles.items():
        sample = 12 if dashed is None else 26
        width = sample + 20 + 7.1 * len(name)
        if x + width > drawing.width - 16:
            x, y = 24, y + 20
        if dashed is None:
            drawing.bar(x, y - 10, sample, 11, drawing.colour(number))
        else:
            drawing.line(x, y - 4, x + sample, y - 4, drawing.colour(number), 2.2, "6 4" if name in dashed else "")
            drawing.mark(x + sample / 2, y - 4, drawing.colour(number), number)
        drawing.text(x + sample + 6, y, name)
        x += width
    return y + 16


def number_text(value, unit):
    factor, name = scale(value, unit)
    return f"{digits(value / factor)} {name}".rstrip()


def lines(theme, title, description, series, x_label, y_label, y_unit="s", none=(), dashed=None):
    """Lines by name: `{name: [(x, samples)]}`. `none` has `(name, x, limit, words)` where a line ends because there is
    nothing more. A line that is `dashed` has the colour of another, whose name it is given with. Both axes are
    logarithmic."""
    dashed = dashed or {}
    drawing = Drawing(WIDTH, 460, theme, title, description)
    drawing.text(24, 30, title, size=17, weight="600")
    solid = [name for name in series if name not in dashed]
    styles = {name: solid.index(dashed.get(name, name)) for name in series}
    top = legend(drawing, styles, 56, dashed) + 8
    left, right, bottom = 78, WIDTH - 24, 460 - 56
    xs = [x for points in series.values() for x, _ in points] + [x for _, x, _, _ in none]
    ys = [one for points in series.values() for _, samples in points for one in samples]
    ys += [limit for _, _, limit, _ in none]
    across = LogScale(min(xs) / 1.15, max(xs) * 1.25, left, right)
    low, high = decade_limits(ys)
    up = LogScale(low, high, bottom, top)
    for tick in up.ticks():
        drawing.line(left, up(tick), right, up(tick))
        drawing.text(left - 8, up(tick) + 4, number_text(tick, y_unit), "end", 12, "faint")
    labelled = None
    for x in sorted(set(xs)):
        drawing.line(across(x), top, across(x), bottom)
        if labelled is None or across(x) - labelled > 34:
            drawing.text(across(x), bottom + 18, f"{x:,}", "middle", 12, "faint")
            labelled = across(x)
    drawing.text((left + right) / 2, bottom + 42, x_label, "middle")
    drawing.text(20, (top + bottom) / 2, y_label, "middle", turned=True)
    for name, points in series.items():
        number, colour = styles[name], drawing.colour(styles[name])
        places = [(across(x), up(median(samples))) for x, samples in points]
        drawing.path(places, colour, "6 4" if name in dashed else "")
        for (x, y), (_, samples) in zip(places, points):
            if max(samples) > min(samples):
                drawing.line(x, up(min(samples)), x, up(max(samples)), colour, 1.2)
            drawing.mark(x, y, colour, number)
    _ends(drawing, series, none, styles, across, up, right)
    return str(drawing)


def _ends(drawing, series, none, styles, across, up, right):
    """Crosses where lines end because there is nothing more, those of one place beside each other, and right of all of
    them what they mean, one below the other."""
    crosses = []
    for name, x, limit, words in sorted(none, key=lambda one: one[1]):
        place = across(x) + 8 * sum(one == x for _, one, _, _ in crosses), up(limit)
        crosses.append((name, x, place, f"{name}, {x:,} nodes: {words}"))
    for number, (name, _, place, words) in enumerate(crosses):
        colour, points = drawing.colour(styles.get(name, 0)), series.get(name)
        if points:
            x, samples = points[-1]
            drawing.path([(across(x), up(median(samples))), place], colour, "2 4")
        drawing.mark(*place, colour, "cross")
        begin, y = max(x for _, _, (x, _), _ in crosses) + 12, place[1] + 4 + 16 * number
        fits = begin + 6.5 * len(words) < right
        drawing.text(begin if fits else right, y, words, "start" if fits else "end", 12, colour)


def bars(theme, title, description, rows, sides, x_label, unit="s", log=True, better="less", origin=None):
    """Groups of horizontal bars: rows of `(name, {side: samples or words})`. Words stand for a bar without an end. Bars
    begin at the left, or at an origin that divides better from worse."""
    if len(sides) == 1:
        return _single_bars(theme, title, description, rows, sides[0], x_label, unit, log, better, origin)
    height_of_bar, gap = 17, 16
    count = sum(len([side for side in sides if side in cells]) for _, cells in rows)
    values = [one for _, cells in rows for cell in cells.values() if not isinstance(cell, str) for one in cell]
    styles = {side: number for number, side in enumerate(sides)}
    top = legend(Drawing(WIDTH, 10, theme, title, description), styles, 56) + 10
    height = round(top + count * height_of_bar + len(rows) * (gap + 18) + 62)
    drawing = Drawing(WIDTH, height, theme, title, description)
    drawing.text(24, 30, title, size=17, weight="600")
    legend(drawing, styles, 56)
    left, right, bottom = 28, WIDTH - 150, height - 56
    across = _across(drawing, values, left, right, top, bottom, x_label, unit, log, better)
    y = top + 4
    for name, cells in rows:
        y += 18
        drawing.text(left + 4, y - 5, name, weight="600")
        for number, side in enumerate(sides):
            if side not in cells:
                continue
            cell, colour = cells[side], drawing.colour(number)
            if isinstance(cell, str):
                drawing.bar(left, y, right - left, height_of_bar - 3, colour, open_end=True)
                drawing.text(right + 8, y + 12, cell, size=12, colour=colour)
            else:
                end = across(median(cell))
                drawing.bar(left, y, end - left, height_of_bar - 3, colour)
                if max(cell) > min(cell):
                    drawing.line(across(min(cell)), y + 7, across(max(cell)), y + 7, "text", 1.2)
                label = max(end, across(max(cell)))
                drawing.text(label + 8, y + 12, number_text(median(cell), unit), size=12)
            y += height_of_bar
        y += gap
    return str(drawing)


def _across(drawing, values, left, right, top, bottom, label, unit, log, better):
    """The axis of bars, with its grid."""
    most = max([one for one in values if one > 0], default=1)
    across = LogScale(*decade_limits(values), left, right) if log else LinearScale(most, left, right)
    for tick in across.ticks():
        drawing.line(across(tick), top, across(tick), bottom)
        drawing.text(across(tick), bottom + 18, number_text(tick, unit) if tick else "0", "middle", 12, "faint")
    drawing.text((left + right) / 2, bottom + 42, f"{label}; {better} is better", "middle")
    return across


def _single_bars(theme, title, description, rows, side, x_label, unit, log, better, origin):
    """One bar a row, with its name beside it."""
    height = 62 + 22 * len(rows) + 60
    drawing = Drawing(WIDTH, height, theme, title, description)
    drawing.text(24, 30, title, size=17, weight="600")
    values = [one for _, cells in rows for one in cells[side]]
    top, bottom, left, right = 50, height - 56, 330, WIDTH - 80
    across = _across(drawing, values, left, right, top, bottom, x_label, unit, log, better)
    begin = left if origin is None else across(origin)
    for number, (name, cells) in enumerate(rows):
        y, value = top + 8 + 22 * number, median(cells[side])
        drawing.text(left - 10, y + 12, name, "end")
        # What is on the worse side of the origin has the colour of others.
        worse = origin is not None and (value < origin) == (better == "more")
        drawing.bar(min(begin, across(value)), y, abs(across(value) - begin), 15, drawing.colour(2 if worse else 0))
        drawing.text(max(begin, across(value)) + 8, y + 12, number_text(value, unit), size=12)
    if origin is not None:
        drawing.line(begin, top, begin, bottom, "faint", 1.5)
    return str(drawing)
