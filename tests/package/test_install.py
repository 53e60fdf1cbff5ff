"""Wheel and sdist as users install them: into environments that have nothing else."""

import os
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT, check_package, check_share, said

TARGET = os.path.abspath(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


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
    crates = ("rallypoint", "rallypoint-core", "rallypoint-py")
    options = ["--profile", "dev", *(f"--config=profile.dev.package.{crate}.opt-level=0" for crate in crates)]
    quick = {"MATURIN_PEP517_ARGS": " ".join(options), "CARGO_TARGET_DIR": TARGET}
    pip(environment, sdist, **({} if os.environ.get("RELEASE") == "1" else quick))
    check_package(environment / "bin")
    check_share(environment / "share")


def test_the_wheel_is_installed_in_an_old_userland(wheel, old):
    root, inside = old
    shutil.copy(wheel, root / "tmp")
    said(*inside, "/usr/bin/python3", "-m", "venv", "/environment")
    said(*inside, "/environment/bin/python", "-m", "pip", "install", "--no-index", f"/tmp/{wheel.name}")
    check_package(*inside, "/environment/bin")
    check_share(root / "environment/share")
