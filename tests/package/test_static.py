"""The static command, in a root directory that has nothing else, as in an image that is made from scratch."""

import shutil
import subprocess

from conftest import VERSION, made, said
from elftools.elf.elffile import ELFFile


def test_it_needs_no_library():
    with open(made("RALLYPOINT_STATIC"), "rb") as file:
        elf = ELFFile(file)
        assert elf.get_section_by_name(".interp") is None
        dynamic = elf.get_section_by_name(".dynamic")
        assert not [tag for tag in dynamic.iter_tags() if tag.entry.d_tag == "DT_NEEDED"] if dynamic else True


def test_it_serves_from_an_empty_root(tmp_path):
    shutil.copy(made("RALLYPOINT_STATIC"), tmp_path / "rallypoint")
    inside = ["chroot", tmp_path, "/rallypoint"]
    assert said(*inside, "--version") == f"rallypoint {VERSION}\n"
    serve = [*inside, "serve", "--listen", "127.0.0.1:0", "--stop-at-eof"]
    with subprocess.Popen(serve, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        endpoint = server.stdout.readline().strip().removeprefix("listening on http://")
        assert said(*inside, "status", "--rdzv-endpoint", endpoint) == "this server has no runs\n"
        server.stdin.close()
        assert server.wait(timeout=60) == 0
