"""What was measured: samples by part, table, row and side, and the file of raw results."""

import json

FORMAT = 1


class Part:
    """The results of one part. A cell has samples, or a note that says why there are none, or both."""

    def __init__(self, measured, rows=(), facts=None):
        self.measured = measured
        self.rows = list(rows)
        # Single values that no table compares, such as a size that ends something.
        self.facts = dict(facts or {})

    def _cell(self, table, what, side, unit, better, x):
        for row in self.rows:
            if (row["table"], row["what"]) == (table, what):
                break
        else:
            row = {"table": table, "what": what, "unit": unit, "better": better, "x": x, "cells": {}}
            self.rows.append(row)
        return row["cells"].setdefault(side, {"samples": [], "note": ""})

    def add(self, table, what, side, value, unit="s", better="less", x=None):
        self._cell(table, what, side, unit, better, x)["samples"].append(value)

    def note(self, table, what, side, note, unit="s", better="less", x=None):
        """Says why this side has no sample, or what is to be known of it."""
        self._cell(table, what, side, unit, better, x)["note"] = note

    def table(self, name):
        return [row for row in self.rows if row["table"] == name]

    def samples(self, table, what, side):
        for row in self.table(table):
            if row["what"] == what:
                return row["cells"].get(side, {}).get("samples", [])
        return []

    def noted(self, table, what, side):
        for row in self.table(table):
            if row["what"] == what:
                return row["cells"].get(side, {}).get("note", "")
        return ""

    def as_json(self):
        return {"measured": self.measured, "rows": self.rows, "facts": self.facts}


class Results:
    """All parts that have been measured, by name. A part that is measured again replaces the earlier one."""

    def __init__(self, parts=()):
        self.parts = dict(parts)

    @classmethod
    def read(cls, path):
        """The results of a file; none if there is no file."""
        if not path.exists():
            return cls()
        raw = json.loads(path.read_text())
        if raw.get("format") != FORMAT:
            raise ValueError(f"{path} has format {raw.get('format')}, and this reads {FORMAT}; remove it")
        return cls({name: Part(one["measured"], one["rows"], one["facts"]) for name, one in raw["parts"].items()})

    def write(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = {"format": FORMAT, "parts": {name: part.as_json() for name, part in sorted(self.parts.items())}}
        path.write_text(json.dumps(raw, indent=1, ensure_ascii=False) + "\n")
