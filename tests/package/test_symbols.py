"""What the extension and the command need of the system: nothing that is younger than glibc 2.17."""

import subprocess
import sys
import zipfile

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

OLDEST = (2, 17)
# Every Linux with glibc has these, since glibc itself brings them.
LIBRARIES = {"libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1", "libutil.so.1"}
LOADERS = {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def needs(file):
    """The libraries that a program or library needs, and the versions of their symbols."""
    elf = ELFFile(file)
    libraries = {
        tag.needed for tag in elf.get_section_by_name(".dynamic").iter_tags() if tag.entry.d_tag == "DT_NEEDED"
    }
    versions = set()
    for section in elf.iter_sections():
        if isinstance(section, GNUVerNeedSection):
            versions.update(one.name for _, auxiliaries in section.iter_versions() for one in auxiliaries)
    return libraries, versions


def younger(versions):
    """Those symbol versions that an old glibc does not have."""
    numbers = {name: name.rpartition("_")[2].split(".") for name in versions}
    return {name for name, number in numbers.items() if tuple(map(int, number)) > OLDEST}


def check(file):
    libraries, versions = needs(file)
    assert libraries <= LIBRARIES | LOADERS
    assert any(name.startswith("GLIBC_") for name in versions), "the search finds nothing"
    assert all(name.startswith("GLIBC_") for name in versions), versions
    assert not younger(versions)


def test_the_wheel(wheel):
    with zipfile.ZipFile(wheel) as files:
        (extension,) = [name for name in files.namelist() if files.read(name)[:4] == b"\x7fELF"]
        with files.open(extension) as file:
            check(file)


def test_the_command(binary):
    with open(binary, "rb") as file:
        check(file)


@pytest.mark.parametrize("name", ["GLIBC_2.18", "GLIBC_2.34", "GLIBC_3.0"])
def test_a_younger_symbol_is_found(name):
    assert younger({"GLIBC_2.2.5", "GLIBC_2.9", "GLIBC_2.17", name}) == {name}


def test_auditwheel_agrees(wheel):
    show = [sys.executable, "-m", "auditwheel", "show", wheel]
    text = " ".join(subprocess.run(show, check=True, capture_output=True, text=True).stdout.split())
    assert 'is consistent with the following platform tag: "manylinux_2_17_' in text
    assert "manylinux2014_" in wheel.name
