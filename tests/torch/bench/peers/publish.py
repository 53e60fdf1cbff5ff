"""Writes everything that is made of the results: plots, the pages of the book, and the README."""

import inspect
import shutil

from . import machine, pages, parts, readme, tables

PAGE, SAMPLES, README = "docs/benchmarks.md", "docs/benchmarks/samples.md", "README.md"


class Place:
    """Where results are read and written: the documents of the repository, or copies of them in another directory."""

    def __init__(self, root, out=None):
        self.root, self.out = root, out
        if out:
            for name in (PAGE, README):
                (out / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(root / name, out / name)
        self.base = out or root
        self.results = self.base / "docs" / "benchmarks" / "results.json"

    def page(self, name):
        return self.base / name

    def pages(self):
        return [self.page(name) for name in (PAGE, SAMPLES, README)]


def _with(function, part, results):
    """Some parts also read what others have measured."""
    return function(part, results) if len(inspect.signature(function).parameters) == 2 else function(part)


def everything(results, place):
    place.results.parent.mkdir(parents=True, exist_ok=True)
    page = place.page(PAGE).read_text()
    samples = ["# Every row\n\n`make bench-peers` writes this page. [Benchmarks](../benchmarks.md) has the tables.\n"]
    for module in parts.ALL:
        part = results.parts.get(module.NAME)
        if part is None:
            continue
        blocks = _with(module.blocks, part, results)
        for name, draw in _with(module.plots, part, results).items():
            pages.write_plots(place.results.parent, name, draw)
            blocks.append(pages.picture(name, draw_title(name), "benchmarks"))
        page = pages.replace_region(page, module.NAME, pages.section(part, command(module, part), blocks))
        samples.append(f"## {module.TITLE}\n\n{machine.sentence(part.measured)}\n")
        samples.append(tables.samples_table(part.rows))
    place.page(PAGE).write_text(page)
    place.page(SAMPLES).write_text("\n".join(samples))
    if readme.is_complete(results):
        readme_text = place.page(README).read_text()
        place.page(README).write_text(pages.replace_region(readme_text, "readme", readme.content(results, command)))


def command(module, part):
    """What measures a part in this way."""
    mode = part.measured["mode"]
    option = "" if mode == "default" else f"--{mode} "
    return f"make bench-peers OPTIONS='{option}--only {module.LETTER}'"


def draw_title(name):
    return {
        "forming": "Time to form a group, by number of nodes",
        "recovery": "From a failure to new workers on all nodes that are left",
        "stores": "How many times better our stores are than PyTorch's",
        "server": "Processor time of the server for a request",
        "scale": "Processor time of the server to form a group again, by number of nodes",
    }[name]
