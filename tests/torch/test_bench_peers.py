"""`make bench-peers`: what it publishes, and that all of it runs."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

import pytest
from bench.peers import parts, publish, readme
from bench.peers.results import Part, Results
from bench.peers.svg import THEMES
from servers import ROOT

PLOTS = ("forming", "recovery", "stores", "server", "scale")
MEASURED = {
    "date": "2026-01-02", "commit": "`abc1234`", "mode": "default", "processor": "a processor", "cores": 2,
    "memory": "8 GiB", "system": "Linux 6.1", "load": 0.1, "versions": {"rallypoint": "0.1.0", "PyTorch": "2.15.0"},
}  # fmt: skip


def spread(value):
    return value, value * 0.8, value * 1.3


def forming():
    part, found = Part(dict(MEASURED), facts={"limit": 60}), parts.forming
    times = {found.OURS: 0.00025, found.ON_ETCD: 0.0005}
    for size in (2, 16, 64, 128, 256):
        for side in found.SIDES:
            if side in times:
                for seconds in spread(0.003 + size * times[side]):
                    part.add(found.PROCESSES, f"{size} nodes", side, seconds, x=size)
            elif size == 256:
                part.note(found.PROCESSES, f"{size} nodes", side, "none in 60 s", x=size)
            elif size == 128 and side == found.STOCK["etcd-v2"]:
                part.note(found.PROCESSES, f"{size} nodes", side, "none in 60 s", x=size)
            else:
                for seconds in spread(1 + size**2 / 2000):
                    part.add(found.PROCESSES, f"{size} nodes", side, seconds, x=size)
    for size in (2, 32, 256, 1024, 4096, 10_000):
        for side in (found.OURS, found.ON_ETCD):
            for seconds in spread(0.002 + size * times[side]):
                part.add(found.ONE, f"{size:,} nodes", side, seconds, x=size)
            if size > 1000:
                part.add(found.COST, f"{found.SERVER_TIME}, {side}", f"{size:,} nodes", times[side])
        part.add(found.COST, "requests", f"{size:,} nodes", 3.0, "")
    return part


def recovery():
    part, found = Part(dict(MEASURED), facts={"limit": 20, "heads": 3, "lease": 10}), parts.recovery
    seconds = {found.WORKER: 0.02, found.AGENT: 0.06, found.NOTICED: 0.06, found.HOST: 10.2, found.HEAD_KILLED: 0.4,
               found.HEAD_GONE: 16}  # fmt: skip
    for size in (4, 16):
        for scenario, value in seconds.items():
            for one in spread(value):
                part.add(scenario, f"{size} nodes", found.RUN, one)
                part.add(scenario, f"{size} nodes", found.PLUGIN, one * 1.7)
            if scenario == found.WORKER:
                part.add(scenario, f"{size} nodes", found.C10D, 2.9)
            elif size == 4:
                part.note(scenario, f"{size} nodes", found.C10D, "not in 20 s")
            else:
                part.note(scenario, f"{size} nodes", found.C10D, "not tried: not with 4 nodes")
    return part


def stores():
    part, found = Part(dict(MEASURED)), parts.stores
    rows = [("add, median", 64e-6, 65e-6, "s"), ("connect 1,024", 0.051, 0.046, "s"), ("get, median", 3e-4, 3e-3, "s"),
            ("EtcdStore add, 128 at once", 0.017, 0.694, "s"), ("memory without clients", 3e6, 5e8, "B"),
            # A difference of two measurements may be less than nothing.
            ("memory for each of 1,000 connections", -12.0, 1100.0, "B")]  # fmt: skip
    for what, ours, theirs, unit in rows:
        part.add(found.TABLE, what, found.OURS, ours, unit)
        part.add(found.TABLE, what, found.STOCK, theirs, unit)
    return part


def launcher():
    part, found = Part(dict(MEASURED)), parts.launcher
    for what, (_, unit, _) in found.MEASURES.items():
        part.add(found.TABLE, what, found.OURS, 0.012 if unit == "s" else 12e6, unit)
        part.add(found.TABLE, what, found.STOCK, 1.5 if unit == "s" else 648e6, unit)
    return part


def server():
    part, found = Part(dict(MEASURED)), parts.server
    for what in found.CALLS.values():
        for number, side in enumerate(found.SIDES):
            for one in spread(1):
                # On disk, ours loses here.
                seconds = 60e-6 if side == found.DISK else (10 + number * 15) * 1e-6
                part.add(found.TIME, f"processor time for a {what}", side, seconds * one)
                part.add(found.RATE, f"{what}s a second", side, one * 90_000 / (number + 1), "", "more")
    return part


def steady():
    part, found = Part(dict(MEASURED), facts={"server_share_1024": 0.005, "seconds": 15}), parts.steady
    part.add(found.TABLE, "64 nodes: packets a second", found.OURS, 20.0, "")
    part.add(found.TABLE, "64 nodes: packets a second", found.C10D, 300.0, "")
    part.note(found.TABLE, "1,024 nodes: packets a second", found.C10D, "not tried", "")
    return part


def scale():
    part, found = Part(dict(MEASURED)), parts.scale
    for size in (1024, 10_000, 100_000):
        for phase in ("round 1", "round 2", "idle"):
            values = {"server_seconds": size * 3e-5, "node_seconds": size * 6e-5, "requests": 3 * size}
            sizes = {"bytes": 7000 * size, "largest_message": 280 * size, "store_bytes": 1500 * size}
            found.take(part, size, {"phase": phase, **values, **sizes})
    return part


def synthetic():
    made = (forming, recovery, stores, launcher, server, steady, scale)
    return Results({part.__name__: part() for part in made})


def check_pages(out):
    """Pages and plots are whole, and belong together."""
    pages = {name: (out / name).read_text() for name in (publish.PAGE, publish.SAMPLES, publish.README)}
    assert "Not measured yet" not in pages[publish.PAGE]
    for name, text in pages.items():
        for source in re.findall(r'(?:src|srcset)="([^"]*)"', text):
            assert (out / name).parent.joinpath(source).exists(), f"{name} shows {source}, which is not there"
        assert not re.search(r"\b(nan|inf|None)\b", text), name
    drawn = out / "docs" / "benchmarks"
    for name in PLOTS:
        for theme in THEMES:
            text = (drawn / f"{name}-{theme}.svg").read_text()
            xml.etree.ElementTree.fromstring(text)
            assert "nan" not in text and "inf" not in text
    return pages


def region(text, name):
    return re.search(rf"<!-- figures: {name} -->(.*)<!-- /figures: {name} -->", text, re.DOTALL)[1]


def test_everything_is_published(tmp_path):
    place = publish.Place(ROOT, tmp_path)
    publish.everything(synthetic(), place)
    pages = check_pages(tmp_path)
    for module in parts.ALL:
        found = region(pages[publish.PAGE], module.NAME)
        assert MEASURED["commit"] in found
        assert f"make bench-peers OPTIONS='--only {module.LETTER}'" in found
    samples = pages[publish.SAMPLES].splitlines()
    rows = [line for line in samples if line.startswith("| ") and not line.startswith("| table")]
    assert len(rows) == len({tuple(line.split(" | ")[:3]) for line in rows}), "rows cannot be told apart"
    assert not [line for line in rows if re.search(r"\de[+-]\d", line)], "a number is written as a power of ten"
    # Again: regions are replaced, and nothing is added.
    publish.everything(synthetic(), place)
    assert check_pages(tmp_path) == pages


def test_the_readme_says_how_on_what_and_who_wins(tmp_path):
    publish.everything(synthetic(), publish.Place(ROOT, tmp_path))
    found = region((tmp_path / publish.README).read_text(), "readme")
    rows = [line for line in found.splitlines() if line.startswith("| ") and "rallypoint | others" not in line]
    assert len(rows) >= 10
    assert all(re.search(r"\| `make bench-peers OPTIONS='--only [a-g]'` \|$", row) for row in rows), rows
    for words in (MEASURED["date"], MEASURED["commit"], MEASURED["processor"]):
        assert found.count(words) == 1, "one run is described once"
    assert "A peer is better in these rows: server: processor time for a put, disk: etcd 3.5 wins" in found
    assert "not in 20 s" in found, "a peer without a figure says so"


def test_parts_of_other_runs_are_described_by_themselves(tmp_path):
    results = synthetic()
    results.parts["server"].measured = {**MEASURED, "commit": "`def5678`"}
    found = readme.content(results, publish.command)
    assert "The server: 2026-01-02, commit `def5678`" in found
    assert "Forming a group, Recovery, Starting: 2026-01-02, commit `abc1234`" in found


@pytest.mark.parametrize("missing", [module.NAME for module in parts.ALL])
def test_what_is_not_measured_yet_is_left_out(tmp_path, missing):
    results = synthetic()
    del results.parts[missing]
    publish.everything(results, publish.Place(ROOT, tmp_path))
    before = (ROOT / publish.PAGE).read_text()
    assert region((tmp_path / publish.PAGE).read_text(), missing) == region(before, missing)


def bench(*options, **environment):
    return subprocess.run(
        [sys.executable, "-m", "bench.peers", *map(str, options)],
        cwd=ROOT / "tests" / "torch", env={**os.environ, **environment}, text=True, capture_output=True,
    )  # fmt: skip


def test_pages_are_written_again_from_what_was_measured(tmp_path):
    results = synthetic()
    results.write(publish.Place(ROOT, tmp_path).results)
    ran = bench("--write-only", "--out", tmp_path)
    assert ran.returncode == 0, ran.stderr
    check_pages(tmp_path)
    # Where nothing was measured, they are those of the documents.
    ran = bench("--write-only", "--out", tmp_path / "another")
    assert ran.returncode == 0, ran.stderr
    documents = (ROOT / "docs" / "benchmarks" / "results.json").read_text()
    assert json.loads((tmp_path / "another" / "docs" / "benchmarks" / "results.json").read_text()) == json.loads(
        documents
    )


def test_a_part_that_fails_leaves_the_others(tmp_path, monkeypatch):
    out, useless = tmp_path / "out", tmp_path / "h2load"
    useless.write_text("#!/bin/sh\necho h2load none\n")
    useless.chmod(0o700)
    monkeypatch.setenv("RALLYPOINT_H2LOAD", str(useless))
    ran = bench("--smoke", "--only", "server,scale", "--out", out)
    assert ran.returncode == 1 and "failed, and not measured: server" in ran.stderr, ran.stderr
    assert set(Results.read(out / "docs" / "benchmarks" / "results.json").parts) == {"scale"}
    assert "make bench-peers" in region((out / publish.PAGE).read_text(), "scale")


@pytest.mark.alone
@pytest.mark.timeout(900)
def test_all_parts_run(tmp_path):
    """With the build of the tests, in the shortest way; what it says of speed means nothing. It is alone because
    the jobs of its recovery have short leases, and its largest groups a thousand nodes."""
    # Of its own: other tests leave files, too.
    with tempfile.TemporaryDirectory() as temporary:
        ran = bench("--smoke", "--out", tmp_path, TMPDIR=temporary)
        assert ran.returncode == 0, ran.stderr
        assert not list(pathlib.Path(temporary).glob("rallypoint-served-*")), "notes of servers are left behind"
    check_pages(tmp_path)
    found = Results.read(tmp_path / "docs" / "benchmarks" / "results.json").parts
    assert set(found) == {module.NAME for module in parts.ALL}
    # Ours has a result in every row that is not the peer's alone; in each of recovery's scenarios, too.
    for name in ("forming", "recovery", "stores", "launcher", "server", "steady"):
        rows, ours, _ = getattr(parts, name).compared(found[name])
        assert rows
        for row in rows:
            for side in ours:
                assert row["cells"].get(side, {}).get("samples"), f"{name}: {row['what']}: {side}: {ran.stderr}"
    scenarios = {row["table"] for row in found["recovery"].rows}
    assert {parts.recovery.HOST, parts.recovery.HEAD_GONE} <= scenarios
    assert found["forming"].samples(parts.forming.PROCESSES, "4 nodes", parts.forming.STOCK["c10d"])
    assert parts.scale.measured(Results(found))
