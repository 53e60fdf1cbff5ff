"""The command by itself, before a release: with an old glibc, and static in an empty root directory."""

import shutil
import subprocess

import pytest
from conftest import VERSION, check_command, check_share, made, said
from elftools.elf.elffile import ELFFile
from symbols import check_symbols, needs


@pytest.fixture
def portable():
    return made("RALLYPOINT_BINARY")


@pytest.fixture
def static():
    return made("RALLYPOINT_STATIC")


def test_the_portable_command_needs_an_old_glibc(portable):
    with open(portable, "rb") as file:
        check_symbols(file)


def test_the_portable_command_brings_its_pages(portable):
    check_command(portable)
    check_share(portable.parents[1] / "share")


def test_the_portable_command_runs_in_an_old_userland(portable, old):
    root, inside = old
    shutil.copy(portable, root / "usr/local/bin/rallypoint")
    check_command(*inside, "/usr/local/bin/rallypoint")


def test_the_static_command_needs_no_library(static):
    with open(static, "rb") as file:
        assert needs(file) == (set(), set())
        assert ELFFile(file).get_section_by_name(".interp") is None


def test_the_static_command_runs_a_job_and_brings_its_pages(static):
    check_command(static)
    check_share(static.parents[1] / "share")


def test_the_static_command_serves_from_an_empty_root(static, tmp_path):
    """As in an image that is made from scratch."""
    shutil.copy(static, tmp_path / "rallypoint")
    inside = ["chroot", tmp_path, "/rallypoint"]
    assert said(*inside, "--version") == f"rallypoint {VERSION}\n"
    serve = [*inside, "serve", "--listen", "127.0.0.1:0", "--stop-at-eof"]
    with subprocess.Popen(serve, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        endpoint = server.stdout.readline().strip().removeprefix("listening on http://")
        assert said(*inside, "status", "--rdzv-endpoint", endpoint) == "this server has no runs\n"
        server.stdin.close()
        assert server.wait(timeout=60) == 0
