"""What the documentation says is so: examples run, and stubs are as the module is."""

import doctest
import re
import subprocess
import sys

import pytest
from conftest import ROOT

import rallypoint

PUBLIC = [getattr(rallypoint, name) for name in rallypoint.__all__]
EXAMPLES = [one for one in PUBLIC if ">>>" in (one.__doc__ or "")]


@pytest.mark.parametrize("documented", EXAMPLES, ids=lambda one: one.__name__)
def test_an_example(documented):
    names = {"rallypoint": rallypoint}
    example = doctest.DocTestParser().get_doctest(documented.__doc__, names, documented.__name__, None, None)
    runner = doctest.DocTestRunner()
    said = []
    runner.run(example, out=said.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(said)


def test_there_are_examples():
    expected = {"Rendezvous", "EtcdStore", "TcpStore", "Server", "EtcdServer", "Client"}
    assert {one.__name__ for one in EXAMPLES} >= expected


def test_everything_is_documented():
    for one in PUBLIC:
        members = [member for name, member in vars(one).items() if not name.startswith("_")]
        for documented in [one, *members]:
            assert documented.__doc__, documented


def test_the_stubs_are_as_the_module_is():
    command = [sys.executable, "-m", "mypy.stubtest", "--ignore-disjoint-bases", "rallypoint._native"]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """What mypy knows of the standard library and of the package is found out once."""
    return tmp_path_factory.mktemp("mypy")


@pytest.fixture
def mypy(tmp_path, cache):
    def check(*arguments):
        command = [sys.executable, "-m", "mypy", "--cache-dir", str(cache), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    return check


def test_the_package_is_typed(mypy):
    """All of it, as its marker claims. PyTorch is not here, so whatever comes from there may be anything."""
    without_torch = ["--ignore-missing-imports", "--allow-subclassing-any", "--no-warn-return-any"]
    checked = mypy("--strict", *without_torch, "-p", "rallypoint")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def programs():
    """Every example: those of docstrings, of the documentation, and in files of their own."""
    for one in EXAMPLES:
        lines = [example.source for example in doctest.DocTestParser().get_examples(one.__doc__)]
        yield f"of_{one.__name__}.py", "import rallypoint\n\n" + "".join(lines)
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        found = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
        for number, program in enumerate(found):
            name = f"{page.parent.name}_{page.stem}_{number}"
            yield f"{name.lower().replace('-', '_')}.py", program


def test_the_examples_are_typed(tmp_path, mypy):
    files = []
    for name, program in programs():
        files.append(tmp_path / name)
        files[-1].write_text(program)
    assert len(files) > len(EXAMPLES)
    checked = mypy("--strict", "--ignore-missing-imports", *files)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    # What is there to be copied from has no annotations of its own.
    copied = sorted((ROOT / "examples").glob("*.py"))
    assert copied
    checked = mypy("--check-untyped-defs", "--ignore-missing-imports", *copied)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        "rallypoint.Client('x').endpoint.rank",
        "rallypoint.Client('x', timeout=5)",
        "rallypoint.Store()",
        "rallypoint.RendezvousInfo()",
        "rallypoint.Rendezvous('', 'job', 1)",
    ],
)
def test_what_is_wrong_is_found_by_its_types(tmp_path, mypy, wrong):
    file = tmp_path / "wrong.py"
    file.write_text(f"import rallypoint\n\n{wrong}\n")
    checked = mypy("--strict", file)
    assert checked.returncode == 1 and "wrong.py:3: error" in checked.stdout, checked.stdout + checked.stderr
    with pytest.raises((TypeError, AttributeError, ValueError)):
        eval(wrong, {"rallypoint": rallypoint})
