"""The real etcds that tests run on: 3.5, which `scripts/test-tools` fetches, and later ones that variables name."""

import contextlib
import functools
import os
import pathlib

import pytest

TARGET = pathlib.Path(__file__).resolve().parents[2] / os.environ.get("CARGO_TARGET_DIR", "target")

# It says where etcd is, to us as to PyTorch.
PROGRAM = "TORCHELASTIC_ETCD_BINARY_PATH"

USUAL = "3.5"
FETCHED = str(TARGET / "tools" / "etcd-3.5" / "etcd")
ETCDS = {USUAL: os.environ.setdefault(PROGRAM, os.environ.get("RALLYPOINT_ETCD_3_5", FETCHED))}
for version, variable in {"3.6": "RALLYPOINT_ETCD_3_6", "3.7": "RALLYPOINT_ETCD_3_7"}.items():
    if variable in os.environ:
        ETCDS[version] = os.environ[variable]


def on_each(name):
    """What an arm on a real etcd is called: by its name on the usual one, with the version behind it on a later one."""
    return [name if version == USUAL else f"{name}@{version}" for version in ETCDS]


def parted(arm):
    """The name of an arm, and the version of its etcd."""
    name, _, version = arm.partition("@")
    return name, version or USUAL


@pytest.fixture
def each_etcd(request, monkeypatch):
    """A test with this runs on each version. Where no variable names a later one, it is one test, without a version in
    its name."""
    monkeypatch.setenv(PROGRAM, ETCDS[getattr(request, "param", USUAL)])


def pytest_generate_tests(metafunc):
    if "each_etcd" in metafunc.fixturenames and len(ETCDS) > 1:
        metafunc.parametrize("each_etcd", list(ETCDS), indirect=True)


@pytest.fixture(scope="session")
def etcds():
    """Tells the one of a version, which is started for the first that asks, for tests with names of their own."""
    import rallypoint

    with contextlib.ExitStack() as stack:

        @functools.cache
        def started(version):
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv(PROGRAM, ETCDS[version])
                return stack.enter_context(rallypoint.EtcdServer())

        yield started
