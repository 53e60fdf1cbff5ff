"""Where the figures go: the raw results, the plots, and the marked regions of the pages."""

import re

from . import machine


class MissingMarker(Exception):
    """A page has no region of this name."""


def replace_region(text, name, content):
    """The text with another content between its markers of this name."""
    begin, end = f"<!-- figures: {name} -->", f"<!-- /figures: {name} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise MissingMarker(f"there must be one region from {begin} to {end}")
    return pattern.sub(lambda _: f"{begin}\n\n{content.strip()}\n\n{end}", text)


def picture(name, words, folder):
    """A plot that follows the theme of whoever reads."""
    return (
        f'<picture>\n<source media="(prefers-color-scheme: dark)" srcset="{folder}/{name}-dark.svg">\n'
        f'<img src="{folder}/{name}-light.svg" width="840"\nalt="{words}">\n</picture>\n'
    )


def write_plots(directory, name, draw):
    """Both themes of a plot. `draw` makes the SVG of one theme."""
    directory.mkdir(parents=True, exist_ok=True)
    for theme in ("light", "dark"):
        (directory / f"{name}-{theme}.svg").write_text(draw(theme))


def section(part, command, blocks):
    """The content of a part's region: on what, by which command, and then its blocks."""
    head = f"{machine.sentence(part.measured)}\n\n```console\n$ {command}\n```\n"
    return "\n".join([head, *(block.rstrip() + "\n" for block in blocks if block)])
