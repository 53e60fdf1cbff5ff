"""Scales and the shapes that plots are made of, as SVG."""

import math
from html import escape

THEMES = {
    "light": {
        "ground": "#ffffff", "text": "#1f2328", "faint": "#59636e", "grid": "#d8dee4",
        "series": ["#0550ae", "#1a7f37", "#bc4c00", "#8250df", "#a40e5a", "#6e5a00"],
    },
    "dark": {
        "ground": "#0d1117", "text": "#e6edf3", "faint": "#9198a1", "grid": "#30363d",
        "series": ["#6cb6ff", "#57d16f", "#ffa657", "#d2a8ff", "#ff7eb6", "#e3cf65"],
    },
}  # fmt: skip

FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', sans-serif"


class LogScale:
    """Maps values to positions, by their logarithms."""

    def __init__(self, low, high, start, end):
        if not 0 < low < high:
            raise ValueError(f"a logarithmic scale needs 0 < {low} < {high}")
        self.low, self.high, self.start, self.end = low, high, start, end

    def __call__(self, value):
        value = min(max(value, self.low), self.high)
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self):
        """The powers of ten of the scale."""
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        return [10.0**power for power in range(first, last + 1)]


class LinearScale:
    """Maps values from 0 on to positions."""

    def __init__(self, high, start, end):
        if high <= 0:
            raise ValueError(f"a scale needs an end above 0, not {high}")
        self.high, self.start, self.end = high, start, end

    def __call__(self, value):
        return self.start + min(max(value / self.high, 0), 1) * (self.end - self.start)

    def ticks(self):
        """About five round numbers."""
        rough = self.high / 5
        base = 10.0 ** math.floor(math.log10(rough))
        step = next(base * factor for factor in (1, 2, 2.5, 5, 10) if base * factor >= rough * 0.999)
        return [step * number for number in range(int(self.high / step + 1e-9) + 1)]


def decade_limits(values):
    """The powers of ten around these values, of which those that have no logarithm do not count."""
    values = [value for value in values if value > 0] or [1]
    low, high = math.floor(math.log10(min(values)) + 1e-9), math.ceil(math.log10(max(values)) - 1e-9)
    return 10.0**low, 10.0 ** max(high, low + 1)


class Drawing:
    """Shapes in one theme."""

    def __init__(self, width, height, theme, title, description):
        self.width, self.height, self.theme = width, height, THEMES[theme]
        self.shapes = [
            f"<title>{escape(title)}</title><desc>{escape(description)}</desc>",
            f'<rect width="{width}" height="{height}" rx="6" fill="{self.theme["ground"]}"/>',
        ]

    def colour(self, number):
        series = self.theme["series"]
        return series[number % len(series)]

    def text(self, x, y, text, anchor="start", size=13, colour="text", weight="normal", turned=False):
        turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
        colour = self.theme.get(colour, colour)
        # Names of code are marked as in Markdown, which a plot is not.
        text = text.replace("`", "")
        self.shapes.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" '
            f'fill="{colour}"{turn}>{escape(text)}</text>'
        )

    def line(self, x1, y1, x2, y2, colour="grid", width=1.0, dash=""):
        dash = f' stroke-dasharray="{dash}"' if dash else ""
        self.shapes.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
            f'stroke="{self.theme.get(colour, colour)}" stroke-width="{width}"{dash}/>'
        )

    def path(self, points, colour, dash=""):
        dash = f' stroke-dasharray="{dash}"' if dash else ""
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.shapes.append(
            f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2.2" '
            f'stroke-linejoin="round"{dash}/>'
        )

    def mark(self, x, y, colour, shape):
        """A point of a line; the shape tells lines apart without colours."""
        if shape == "cross":
            for rise in (5, -5):
                self.line(x - 5, y - rise, x + 5, y + rise, colour, 2.2)
        elif shape % 3 == 0:
            self.shapes.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
        elif shape % 3 == 1:
            self.shapes.append(f'<rect x="{x - 3.6:.1f}" y="{y - 3.6:.1f}" width="7.2" height="7.2" fill="{colour}"/>')
        else:
            points = f"{x:.1f},{y - 5:.1f} {x + 4.8:.1f},{y + 3.6:.1f} {x - 4.8:.1f},{y + 3.6:.1f}"
            self.shapes.append(f'<polygon points="{points}" fill="{colour}"/>')

    def bar(self, x, y, width, height, colour, open_end=False):
        """A bar; one with an open end has no end that is known."""
        style = f'fill="{colour}"'
        if open_end:
            style = f'fill="{colour}" fill-opacity="0.15" stroke="{colour}" stroke-dasharray="4 3"'
        self.shapes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 1):.1f}" height="{height:.1f}" rx="2" {style}/>'
        )

    def __str__(self):
        body = "\n".join(self.shapes)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" role="img" font-family="{FONT}">\n{body}\n</svg>\n'
        )
