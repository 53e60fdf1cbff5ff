"""What was measured on what."""

import datetime
import os
import pathlib
import platform
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[4]


def _first(path, key):
    try:
        for line in pathlib.Path(path).read_text().splitlines():
            if line.startswith(key):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return ""


def _output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=30).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def commit():
    """The commit, and whether the tree differs from it. Results and pages are what a run writes."""
    name = _output("git", "rev-parse", "--short", "HEAD") or "none"
    changed = _output("git", "status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs", ":!README.md")
    return f"`{name}` with changes" if changed else f"`{name}`"


def busy():
    """How many processes wanted a processor in the last minute, on average."""
    return round(os.getloadavg()[0], 1)


def describe(mode, versions):
    memory = int(_first("/proc/meminfo", "MemTotal").split()[0]) / 2**20
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "commit": commit(),
        "mode": mode,
        "processor": _first("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": os.cpu_count(),
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "load": busy(),
        "versions": versions,
    }


def sentence(measured):
    """One line for a page."""
    versions = ", ".join(f"{name} {version}" for name, version in measured["versions"].items())
    mode = "" if measured["mode"] == "default" else f" `{measured['mode']}` run;"
    return (
        f"{measured['date']}, commit {measured['commit']};{mode} {measured['cores']} cores of "
        f"{measured['processor']}, {measured['memory']}, {measured['system']}; {versions}; load average "
        f"{measured['load']} when the run began."
    )
