"""Wheel, sdist and command as users install them: into environments that have nothing else."""

import os
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT, check_command, check_package, check_share, made, said

TARGET = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))


@pytest.fixture
def environment(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "environment"], check=True)
    return tmp_path / "environment"


def pip(environment, *arguments, **variables):
    command = [environment / "bin/python", "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    said(*command, *arguments, env={**os.environ, **variables})


def test_the_wheel_is_installed_without_an_index(wheel, environment):
    pip(environment, "--no-index", wheel)
    check_package(environment / "bin")
    check_share(environment / "share")


def test_the_sdist_is_built_by_pip(sdist, environment):
    """As a quick build, which finds its dependencies built, unless a release is checked."""
    quick = {"MATURIN_PEP517_ARGS": "--profile dev", "CARGO_TARGET_DIR": TARGET}
    pip(environment, sdist, **({} if os.environ.get("RELEASE") == "1" else quick))
    check_package(environment / "bin")
    check_share(environment / "share")


def test_the_command_brings_its_pages(binary):
    check_command(binary)
    check_share(binary.parents[1] / "share")


@pytest.fixture
def old(tmp_path):
    """What runs a command in an old Debian, whose files are a copy. It has its own mounts and processes."""
    root = tmp_path / "root"
    subprocess.run(["cp", "-a", "--reflink=auto", made("RALLYPOINT_OLD"), root], check=True)
    isolated = ["unshare", "--mount", "--pid", "--fork", "--kill-child", f"--mount-proc={root}/proc"]
    yield root, [*isolated, "chroot", root]
    shutil.rmtree(root)


def test_an_old_userland(wheel, binary, old):
    root, inside = old
    libc = said(*inside, "/bin/sh", "-c", "ldd --version").splitlines()[0]
    print(f"the old userland is {(root / 'etc/debian_version').read_text().strip()}: {libc}")
    shutil.copy(binary, root / "usr/local/bin/rallypoint")
    check_command(*inside, "/usr/local/bin/rallypoint")
    shutil.copy(wheel, root / "tmp")
    said(*inside, "/usr/bin/python3", "-m", "venv", "/environment")
    said(*inside, "/environment/bin/python", "-m", "pip", "install", "--no-index", f"/tmp/{wheel.name}")
    check_package(*inside, "/environment/bin")
    check_share(root / "environment/share")
