"""What no machine here can run, the workflows and the Dockerfile: they are valid, and call our own scripts."""

import re
import subprocess
import sys

import pytest
from conftest import ROOT

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
RELEASE = ROOT / ".github/workflows/release.yml"


def test_the_workflows_are_as_their_schema_asks():
    assert RELEASE in WORKFLOWS
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    ended = subprocess.run([*check, *WORKFLOWS], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("file", [*WORKFLOWS, ROOT / "Dockerfile"], ids=lambda file: file.name)
def test_what_they_call_is_there(file):
    text = re.sub(r"^ *#.*", "", file.read_text(), flags=re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text()
    goals = re.findall(r"\bmake ([a-z-]+)", text)
    scripts = re.findall(r"\bscripts/[\w-]+", text)
    assert goals or scripts, "the search finds nothing"
    assert [goal for goal in goals if not re.search(rf"^{goal}:", makefile, re.MULTILINE)] == []
    assert [script for script in scripts if not (ROOT / script).exists()] == []


def test_a_release_covers_both_processors_and_uses_no_action_of_others():
    text = RELEASE.read_text()
    assert set(re.findall(r"processor: (\w+)", text)) == {"x86_64", "aarch64"}
    assert "make package-check RELEASE=1" in text and "make dist" in text
    actions = re.findall(r"uses: (\S+)", text)
    assert actions and all(action.startswith("actions/") for action in actions)


def test_the_image_has_the_static_command_and_nothing_else():
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if line and not line.startswith("#")]
    stages = [index for index, line in enumerate(lines) if line.startswith("FROM ")]
    build, last = lines[: stages[-1]], lines[stages[-1] :]
    assert any("scripts/binary static" in line and line.endswith(" /rallypoint") for line in build)
    name = re.fullmatch(r"FROM rust:([\d.]+)-slim AS (\w+)", build[0])
    assert last[0] == "FROM scratch"
    assert last[1:] == [f"COPY --from={name[2]} /rallypoint /rallypoint", 'ENTRYPOINT ["/rallypoint"]']
    # The compiler of the image is the one that this repository is built with.
    assert f'channel = "{name[1]}.' in (ROOT / "rust-toolchain.toml").read_text()
