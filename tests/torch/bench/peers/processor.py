"""The processor time and the memory of a process."""

import os
import pathlib

TICKS = os.sysconf("SC_CLK_TCK")


def processor_time(pid):
    """In seconds, of all threads."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident(pid):
    """In bytes."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0
