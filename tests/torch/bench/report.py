"""The table."""

import json
import statistics

OURS, STOCK = "ours", "stock"


class Report:
    """Samples by row and by side. The two sides of a row are measured in turns, so that what the machine does
    meanwhile meets both; the table has their medians."""

    def __init__(self):
        self.rows = {}

    def add(self, what, side, value, more_is_better=False):
        row = self.rows.setdefault(what, {"more_is_better": more_is_better, OURS: [], STOCK: []})
        row[side].append(value)

    def measured(self):
        for what, row in self.rows.items():
            ours, stock = (statistics.median(row[side]) for side in (OURS, STOCK))
            yield what, ours, stock, ours / stock if row["more_is_better"] else stock / ours

    def print_table(self):
        print(f"| {'':<50} | {OURS:>10} | {STOCK:>10} | {'ratio':>6} |")
        print(f"|{'-' * 52}|{'-' * 11}:|{'-' * 11}:|{'-' * 7}:|")
        for what, ours, stock, ratio in self.measured():
            print(f"| {what:<50} | {number(ours):>10} | {number(stock):>10} | {ratio:>5.2f}x |")
        print("\nratio: how many times better ours is.")

    def print_json(self):
        names = ("what", "ours", "stock", "ratio")
        print(json.dumps([dict(zip(names, row)) for row in self.measured()], indent=1))


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.3f}"
