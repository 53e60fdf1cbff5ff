"""What scripts/package-check made, by the names of environment variables; and what all of it must do."""

import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = re.search(r'^version = "([^"]+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]

# Longer than pip takes to build the sdist on a busy machine, in seconds.
PATIENCE = 1700

# A server, a client and a store within one process, through the extension.
PYTHON = """
import rallypoint
with rallypoint.Server("127.0.0.1:0") as server:
    store = rallypoint.EtcdStore(rallypoint.Client(server.endpoint), "/smoke")
    store.set("key", "value")
    print(rallypoint.__version__, store.get("key").decode())
"""


def made(variable):
    path = os.environ.get(variable)
    assert path, f"scripts/package-check sets {variable}; run it, or set the variable"
    return pathlib.Path(path)


@pytest.fixture(scope="session")
def wheel():
    return made("RALLYPOINT_WHEEL")


@pytest.fixture(scope="session")
def sdist():
    return made("RALLYPOINT_SDIST")


@pytest.fixture
def old(tmp_path):
    """What runs a command in an old Debian, whose files are a copy. It has its own mounts and processes."""
    root = tmp_path / "root"
    subprocess.run(["cp", "-a", "--reflink=auto", made("RALLYPOINT_OLD"), root], check=True)
    isolated = ["unshare", "--mount", "--pid", "--fork", "--kill-child", f"--mount-proc={root}/proc"]
    yield root, [*isolated, "chroot", root]
    shutil.rmtree(root)


def said(*command, **options):
    """What a command printed, which must succeed. If it hangs, what it started ends with it."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen(command, **pipes, **options) as process:
        try:
            output, errors = process.communicate(timeout=PATIENCE)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == 0, f"{command}: {output}{errors}"
    return output


def check_command(*rallypoint):
    """The command knows its version, and runs a job of two workers with a server of its own."""
    assert said(*rallypoint, "--version") == f"rallypoint {VERSION}\n"
    job = ["run", "--standalone", "--nproc-per-node", "2", "--", "/bin/sh", "-c", "echo rank $RANK of $WORLD_SIZE"]
    assert sorted(said(*rallypoint, *job).splitlines()) == ["rank 0 of 2", "rank 1 of 2"]


def check_package(*programs):
    """The Python package in an environment whose programs are in a directory, by way of a command before it if any."""
    *before, directory = programs
    check_command(*before, f"{directory}/rallypoint")
    assert said(*before, f"{directory}/python", "-c", PYTHON) == f"{VERSION} value\n"


def check_share(share):
    """Completions and pages of the manual, as a package lays them below a prefix."""
    page = (share / "man/man1/rallypoint-run.1").read_text()
    assert "rdzv\\-endpoint" in page
    assert (share / "man/man1/rallypoint.1").exists()
    for path in ("bash-completion/completions/rallypoint", "zsh/site-functions/_rallypoint"):
        assert "rdzv-endpoint" in (share / path).read_text(), path
    assert "rdzv-endpoint" in (share / "fish/vendor_completions.d/rallypoint.fish").read_text()
