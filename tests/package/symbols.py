"""What a program or a library needs of the system: nothing that is younger than glibc 2.17."""

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

OLDEST = (2, 17)
# Every Linux with glibc has these, since glibc itself brings them.
LIBRARIES = {"libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1", "libutil.so.1"}
LOADERS = {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def needs(file):
    """The libraries that a file needs, and the versions of their symbols."""
    elf = ELFFile(file)
    dynamic = elf.get_section_by_name(".dynamic")
    tags = dynamic.iter_tags() if dynamic else []
    libraries = {tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"}
    versions = set()
    for section in elf.iter_sections():
        if isinstance(section, GNUVerNeedSection):
            versions.update(one.name for _, auxiliaries in section.iter_versions() for one in auxiliaries)
    return libraries, versions


def younger(versions):
    """Those versions that an old glibc does not have."""
    numbers = {name: name.rpartition("_")[2].split(".") for name in versions}
    return {name for name, number in numbers.items() if tuple(map(int, number)) > OLDEST}


def check_symbols(file):
    libraries, versions = needs(file)
    assert any(name.startswith("GLIBC_") for name in versions), "the search finds nothing"
    assert all(name.startswith("GLIBC_") for name in versions), versions
    assert not younger(versions)
    assert libraries <= LIBRARIES | LOADERS
