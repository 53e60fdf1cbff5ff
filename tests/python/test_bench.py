"""The parts of the benchmarks that compute and write: medians, winners, scales, tables, plots, pages, time left."""

import json
import sys
import xml.etree.ElementTree

import pytest
from conftest import ROOT

sys.path.append(str(ROOT / "tests" / "torch"))

from bench.peers import charts, figures, pages, progress, tables
from bench.peers.results import Part, Results
from bench.peers.svg import THEMES, LinearScale, LogScale, decade_limits

# ---- Numbers


@pytest.mark.parametrize(
    "samples, unit, text",
    [
        ([0.0154], "s", "15 ms"),
        ([2.94, 2.9, 3.1], "s", "2.9 s (2.9–3.1)"),
        ([63e-6, 60e-6, 71e-6], "s", "63 µs (60–71)"),
        ([78123.0], "", "78,100"),
        ([12.2 * 2**20], "B", "12 MiB"),
        ([91000.0], "B/s", "91 kB/s"),
        ([0.9], "%", "0.9 %"),
        ([0.0], "s", "0 µs"),
        # The spread is on the scale of the median, also where it would be another unit by itself.
        ([0.5, 0.016, 1.02], "s", "500 ms (16–1,020)"),
    ],
)
def test_a_number_is_written_with_its_unit_and_its_spread(samples, unit, text):
    assert figures.quantity(samples, unit) == text


def test_the_best_is_the_least_or_the_most_and_equal_is_equal():
    cells = {"a": [1.0, 3.0, 2.0], "b": [2.001], "c": [5.0], "none": []}
    assert figures.best(cells, "less") == {"a", "b"}
    assert figures.best(cells, "more") == {"c"}
    assert figures.best({"a": [1.0], "none": []}, "less") == set()


@pytest.mark.parametrize(
    "ours, theirs, unit, equal",
    [
        (0.123, 0.117, "s", False),  # 123 ms and 117 ms
        (1.04, 1.01, "s", True),  # both are printed as 1.0 s
        (0.000999, 0.00104, "s", False),  # 999 µs and 1.0 ms
        (78_120, 78_060, "", True),  # both are printed as 78,100
        (78_120, 78_180, "", False),
    ],
)
def test_equal_is_what_is_printed_alike(ours, theirs, unit, equal):
    cells = {"ours": [ours], "theirs": [theirs]}
    assert (figures.best(cells, "less", unit) == {"ours", "theirs"}) == equal


def test_how_many_times_better():
    assert figures.times([2.0], [6.0], "less") == 3
    assert figures.times([6.0], [2.0], "more") == 3
    assert figures.times([0.0], [2.0], "less") is None
    assert figures.times([-1.0], [2.0], "less") is None, "a difference that the noise has made negative"


# ---- Tables


def part():
    found = Part({"date": "today"})
    for value in (0.02, 0.01, 0.03):
        found.add("t", "first", "ours", value)
    found.add("t", "first", "theirs", 2.0)
    found.add("t", "second", "ours", 3.0)
    for value in (1.0, 1.1, 4.0):
        found.add("t", "second", "theirs", value)
    found.add("t", "third", "ours", 1.0)
    found.note("t", "third", "theirs", "not in 20 s")
    return found


def test_a_table_has_the_winner_in_bold_and_says_who_did_not_come():
    assert tables.table(part().table("t"), ["ours"], ["ours", "theirs"]).splitlines() == [
        "|  | ours | theirs | times |",
        "|---|--:|--:|--:|",
        "| first | **20 ms (10–30)** | 2.0 s (1 run) | 100 |",
        "| second | 3.0 s (1 run) | **1.1 s (1.0–4.0)** | 0.37 |",
        "| third | 1.0 s (1 run) | not in 20 s |  |",
    ]


def test_a_table_without_peers_has_no_winner():
    text = tables.table(part().table("t"), ["ours", "theirs"], ["ours", "theirs"])
    assert "**" not in text and "times" not in text


def test_the_rows_that_a_peer_wins_are_named():
    assert tables.losses(part().table("t"), ["ours"], ["ours", "theirs"]) == [
        "second: theirs wins, within the spread",
    ]


def test_a_peer_that_alone_has_a_result_wins():
    found = Part({})
    found.note("t", "row", "ours", "not in 20 s")
    found.add("t", "row", "theirs", 1.0)
    assert tables.losses(found.table("t"), ["ours"], ["ours", "theirs"]) == ["row: theirs wins"]


def test_a_peer_that_is_better_by_a_printed_digit_wins():
    found = Part({})
    found.add("t", "row", "ours", 0.123)
    found.add("t", "row", "theirs", 0.117)
    text = tables.table(found.table("t"), ["ours"], ["ours", "theirs"])
    assert "| 123 ms (1 run) | **117 ms (1 run)** | 0.95 |" in text
    assert tables.losses(found.table("t"), ["ours"], ["ours", "theirs"]) == ["row: theirs wins"]


def test_a_peer_that_is_better_than_one_of_ours_is_named():
    found = Part({})
    for side, value in (("memory", 10.0), ("disk", 60.0), ("theirs", 40.0)):
        found.add("t", "row", side, value)
    sides = ["memory", "disk", "theirs"]
    assert tables.losses(found.table("t"), ["memory", "disk"], sides) == ["row: theirs wins against disk"]
    assert tables.losses(found.table("t"), ["disk"], sides[1:]) == ["row: theirs wins"]
    assert tables.losses(found.table("t"), ["memory"], ["memory", "theirs"]) == []


def test_every_row_names_its_table_and_is_written_in_plain_numbers():
    found = part()
    found.add("other", "first", "ours", 656_312.0, "")
    lines = tables.samples_table(found.rows).splitlines()
    assert "| t | first | ours | 20 | 10 | 30 | ms | 3 |  |" in lines
    assert "| other | first | ours | 656,000 | 656,000 | 656,000 |  | 1 |  |" in lines
    assert "| t | third | theirs |  |  |  | s | 0 | not in 20 s |" in lines


# ---- Results


def test_results_are_merged_by_part(tmp_path):
    path = tmp_path / "docs" / "results.json"
    first = Results({"a": part(), "b": part()})
    first.write(path)
    later = Results.read(path)
    later.parts["b"] = Part({"date": "tomorrow"})
    later.write(path)
    found = Results.read(path)
    assert found.parts["a"].samples("t", "first", "ours") == [0.02, 0.01, 0.03]
    assert found.parts["a"].noted("t", "third", "theirs") == "not in 20 s"
    assert found.parts["b"].measured == {"date": "tomorrow"} and found.parts["b"].rows == []


def test_results_of_another_format_are_refused(tmp_path):
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"format": 99, "parts": {}}))
    with pytest.raises(ValueError, match="has format 99"):
        Results.read(path)


# ---- Scales and plots


def test_a_logarithmic_scale():
    scale = LogScale(0.01, 100, 0, 400)
    assert [round(scale(value)) for value in (0.01, 0.1, 1, 100)] == [0, 100, 200, 400]
    assert scale.ticks() == pytest.approx([0.01, 0.1, 1, 10, 100])
    assert scale(1e9) == 400, "what is beyond its end is at its end"
    assert [round(LogScale(1, 10, 100, 0)(value)) for value in (1, 10)] == [100, 0]
    with pytest.raises(ValueError):
        LogScale(0, 10, 0, 1)


def test_a_linear_scale():
    scale = LinearScale(37, 0, 370)
    assert (scale(0), scale(37)) == (0, 370)
    assert scale.ticks() == [0, 10, 20, 30]
    assert LinearScale(0.04, 0, 1).ticks() == pytest.approx([0, 0.01, 0.02, 0.03, 0.04])


def test_the_decades_around_values():
    assert decade_limits([0.02, 3]) == pytest.approx((0.01, 10))
    assert decade_limits([1, 10]) == pytest.approx((1, 10))
    assert decade_limits([5]) == pytest.approx((1, 10))
    assert decade_limits([-3, 0, 5]) == pytest.approx((1, 10)), "what has no logarithm does not count"
    assert decade_limits([]) == pytest.approx((1, 10))


def texts(svg):
    root = xml.etree.ElementTree.fromstring(svg)
    assert root.tag.endswith("svg")
    return [element.text for element in root.iter() if element.tag.endswith("text")]


@pytest.mark.parametrize("theme", THEMES)
def test_a_plot_of_lines_has_axes_units_and_a_legend(theme):
    series = {"ours & co": [(2, [0.005, 0.006]), (256, [0.1])], "theirs": [(2, [1.1]), (64, [9.0])]}
    none = [("theirs", 256, 60, "none in 60 s")]
    svg = charts.lines(theme, "A title", "Words", series, "nodes (logarithmic)", "seconds", none=none)
    found = texts(svg)
    assert {"A title", "ours & co", "theirs", "nodes (logarithmic)", "seconds", "256", "1.0 ms", "10 s"} <= set(found)
    assert "theirs, 256 nodes: none in 60 s" in found
    assert THEMES[theme]["ground"] in svg


def test_lines_that_end_at_one_place_are_told_apart():
    series = {name: [(2, [1.0])] for name in "abc"}
    none = [("a", 128, 60, "none in 60 s"), ("b", 256, 60, "none in 60 s"), ("c", 256, 60, "none in 60 s")]
    svg = charts.lines("light", "A title", "Words", series, "nodes", "seconds", none=none)
    root = xml.etree.ElementTree.fromstring(svg)
    words = [element for element in root.iter() if (element.text or "").endswith("none in 60 s")]
    heights = sorted(float(element.get("y")) for element in words)
    assert len(words) == 3 and all(lower - upper >= 14 for upper, lower in zip(heights, heights[1:]))


@pytest.mark.parametrize("log", [True, False])
def test_a_plot_of_nothing_is_a_plot(log):
    rows = [("a row", {"ours": [0.0], "theirs": [-1.0]}), ("another", {"theirs": "not in 20 s"})]
    assert "0 µs" in texts(charts.bars("light", "A title", "Words", rows, ["ours", "theirs"], "seconds", log=log))


@pytest.mark.parametrize("theme", THEMES)
def test_a_plot_of_bars_tells_values_and_what_has_no_end(theme):
    rows = [("a worker fails", {"ours": [0.02], "theirs": [3.0, 4.0]}), ("a host", {"theirs": "not in 20 s"})]
    found = texts(charts.bars(theme, "A title", "Words", rows, ["ours", "theirs"], "seconds"))
    assert {"20 ms", "3.5 s", "not in 20 s", "seconds; less is better", "a worker fails"} <= set(found)


# ---- Pages


def test_a_region_is_replaced_and_all_else_is_kept():
    text = "before\n<!-- figures: one -->\nold\n<!-- /figures: one -->\nafter\n"
    found = pages.replace_region(text, "one", "new \\1")
    assert found == "before\n<!-- figures: one -->\n\nnew \\1\n\n<!-- /figures: one -->\nafter\n"
    assert pages.replace_region(found, "one", "new \\1") == found


@pytest.mark.parametrize("text", ["", "<!-- figures: one -->", "<!-- figures: one --><!-- /figures: one -->" * 2])
def test_a_page_without_the_region_is_an_error(text):
    with pytest.raises(pages.MissingMarker, match="figures: one"):
        pages.replace_region(text, "one", "new")


def test_the_documents_have_every_region():
    for name in ("forming", "recovery", "stores", "launcher", "server", "steady", "scale"):
        pages.replace_region((ROOT / "docs" / "benchmarks.md").read_text(), name, "")
    pages.replace_region((ROOT / "README.md").read_text(), "readme", "")


# ---- Time left


def test_the_time_left_follows_the_pace():
    now, said = [0.0], []
    found = progress.Progress(100, clock=lambda: now[0], write=said.append)
    found.begin("one", 50)
    found.step("first", 0)
    assert said[-1] == "[0:00, about 1:40 left] one: first"
    # Half of the part took twice as long as it was to take.
    now[0] = 50
    found.step("second", 0.5)
    assert said[-1] == "[0:50, about 2:30 left] one: second"
    found.begin("two", 50)
    now[0] = 100
    found.step("third", 0)
    assert said[-1] == "[1:40, about 1:40 left] two: third"
