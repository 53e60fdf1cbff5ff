"""What the documentation says is so: examples run, and stubs are as the module is."""

import doctest
import subprocess
import sys

import pytest

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
    assert {one.__name__ for one in EXAMPLES} >= {"Rendezvous", "EtcdStore", "TcpStore", "Server", "EtcdServer", "Client"}


def test_everything_is_documented():
    for one in PUBLIC:
        members = [member for name, member in vars(one).items() if not name.startswith("_")]
        for documented in [one, *members]:
            assert documented.__doc__, documented


def test_the_stubs_are_as_the_module_is():
    command = [sys.executable, "-m", "mypy.stubtest", "--ignore-disjoint-bases", "rallypoint._native"]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_types(tmp_path):
    """A program that is right passes, and one that is wrong does not."""
    right = tmp_path / "right.py"
    right.write_text(
        "import rallypoint\n"
        "with rallypoint.Rendezvous('', 'job', 1, 1, lease_ttl=3) as rendezvous:\n"
        "    group = rendezvous.next_rendezvous()\n"
        "    rank: int = group.rank\n"
        "    value: bytes = group.store.get('key')\n"
    )
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import rallypoint\nrank: str = rallypoint.Client('x').endpoint.rank\n")

    def check(file):
        command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(file)]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    passed = check(right)
    assert passed.returncode == 0, passed.stdout
    assert check(wrong).returncode == 1
