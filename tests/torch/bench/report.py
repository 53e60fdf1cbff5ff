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
            ours = statistics.median(row[OURS])
            # What the other side cannot do at all is not measured.
            stock = statistics.median(row[STOCK]) if row[STOCK] else None
            ratio = stock and (ours / stock if row["more_is_better"] else stock / ours)
            yield what, ours, stock, ratio

    def print_table(self):
        print(f"| {'':<50} | {OURS:>10} | {STOCK:>10} | {'ratio':>6} |")
        print(f"|{'-' * 52}|{'-' * 11}:|{'-' * 11}:|{'-' * 7}:|")
        for what, ours, stock, ratio in self.measured():
            ratio = f"{ratio:.2f}x" if ratio else ""
            print(f"| {what:<50} | {number(ours):>10} | {number(stock):>10} | {ratio:>6} |")
        print("\nratio: how many times better ours is.")

    def print_json(self):
        names = ("what", "ours", "stock", "ratio")
        print(json.dumps([dict(zip(names, row)) for row in self.measured()], indent=1))


def number(value):
    if value is None:
        return "never"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.3f}"
