"""The wheel is for old systems: by the symbols of its extension, and by auditwheel's own rules."""

import subprocess
import sys
import zipfile

import pytest
from symbols import check_symbols, younger


def test_the_extension_needs_an_old_glibc(wheel):
    with zipfile.ZipFile(wheel) as files:
        (extension,) = [name for name in files.namelist() if files.read(name)[:4] == b"\x7fELF"]
        with files.open(extension) as file:
            check_symbols(file)


@pytest.mark.parametrize("name", ["GLIBC_2.18", "GLIBC_2.34", "GLIBC_3.0"])
def test_a_younger_symbol_is_found(name):
    assert younger({"GLIBC_2.2.5", "GLIBC_2.9", "GLIBC_2.17", name}) == {name}


def test_auditwheel_agrees(wheel):
    show = [sys.executable, "-m", "auditwheel", "show", wheel]
    text = " ".join(subprocess.run(show, check=True, capture_output=True, text=True).stdout.split())
    assert 'is consistent with the following platform tag: "manylinux_2_17_' in text
    assert "manylinux2014_" in wheel.name
