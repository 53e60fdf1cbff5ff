"""Hosts on one machine: each has a network and a name of its own, and all know each other by name.

A host is a process in namespaces of its own (network, host name, mounts), and lasts as long as that. It needs root,
`unshare` and `nsenter` of util-linux, and `ip` of iproute2, which scripts/test-tools fetches where there is none.
"""

import contextlib
import itertools
import os
import pathlib
import shutil
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")

# A machine that has much else to do is slow, and nothing here is about speed.
PATIENCE = 60

# The first process of a host takes its name and its hosts file, and says so. When whoever started it is gone,
# however that came about, it ends everything that runs there, until nothing does.
KEEPER = """hostname "$0" && mount --bind "$1" /etc/hosts && mount --bind /dev/null /etc/resolv.conf || exit 1
echo ready
read -r _
ours=$(readlink /proc/$$/ns/net)
while
    left=
    for process in /proc/[0-9]*; do
        [ "$(readlink $process/ns/net)" = "$ours" ] && [ $process != /proc/$$ ] && left="$left ${process#/proc/}"
    done
    [ -n "$left" ]
do
    # What Slurm has suspended is not killed before it is thawed.
    find "/sys/fs/cgroup/freezer/slurm_$0" -name freezer.state | while read -r state; do echo THAWED >"$state"; done
    kill -9 $left
    sleep 0.02
done 2>/dev/null
"""


def until(what, condition, failed=lambda: None, about=lambda: ""):
    """Waits until a condition holds, and returns what it is.

    `failed` says why that cannot come any more; `about` is told if it does not come in time.
    """
    end = time.monotonic() + PATIENCE
    for turn in itertools.count():
        found = condition()
        if found:
            return found
        # It asks the controller, which costs more than to look at a file.
        broken = turn % 10 == 9 and failed()
        assert not broken, f"while waiting until {what}: {broken}"
        assert time.monotonic() < end, f"not within {PATIENCE} s: {what}: {about()}"
        time.sleep(0.05)


def ip_program():
    fetched = TARGET / "tools" / "iproute2" / "ip"
    found = fetched if fetched.exists() else shutil.which("ip", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    assert found, "there is no ip of iproute2; scripts/test-tools fetches it"
    return str(found)


class Host:
    def __init__(self, name, hosts_file):
        self.name = name
        command = ["unshare", "--net", "--uts", "--mount", "sh", "-c", KEEPER, name, str(hosts_file)]
        self.keeper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.keeper.stdout.readline() == "ready\n", "this machine allows no namespaces: run this as root"
        self.ip("link", "set", "lo", "up")

    def enter(self, *command, directory="/"):
        """The command that runs another there."""
        spaces = ["nsenter", "--net", "--uts", "--mount", "--target", str(self.keeper.pid)]
        # Only from within: a directory that was opened outside would have no name inside.
        return [*spaces, "env", "-C", str(directory), *map(str, command)]

    def ip(self, *words):
        said = subprocess.run(self.enter(ip_program(), *words), capture_output=True, text=True)
        assert said.returncode == 0, f"ip {' '.join(words)}: {said.stderr}"

    def processes(self):
        """Who runs there, besides the keeper. Processes that have ended and wait for their parents do not count."""
        ours = os.readlink(f"/proc/{self.keeper.pid}/ns/net")
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.readlink(entry / "ns" / "net") == ours:
                    found.append(int(entry.name))
            except OSError:
                continue  # It has ended meanwhile.
        return [pid for pid in found if pid != self.keeper.pid]

    def kill(self):
        """Ends everything that runs there at once, until nothing of it is left."""

        def left():
            found = self.processes()
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return found

        until(f"everything on {self.name} has ended", lambda: not left())

    def close(self):
        self.keeper.communicate()


def program(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


class Network:
    """Hosts of these names, on one switch."""

    def __init__(self, directory, names):
        self.file = pathlib.Path(directory) / "hosts"
        self.addresses, self.hosts, self.former, self.ports = {}, {}, [], {}
        for name in names:
            self.give_address(name)
        self.switch = Host("switch", self.file)
        try:
            for bridge in ("bridge", "apart"):
                self.switch.ip("link", "add", bridge, "type", "bridge")
                self.switch.ip("link", "set", bridge, "up")
            for name in names:
                self.connect(name)
        except BaseException:
            self.close()
            raise

    def give_address(self, name):
        """All hosts know it at once: the file that they have is written again in its place."""
        last = max((int(address.rpartition(".")[2]) for address in self.addresses.values()), default=9)
        self.addresses[name] = f"10.77.0.{last + 1}"
        known = {"localhost": "127.0.0.1", **self.addresses}
        self.file.write_text("".join(f"{address} {name}\n" for name, address in known.items()))

    def connect(self, name):
        host = self.hosts[name] = Host(name, self.file)
        port = self.ports[name] = f"port{self.addresses[name].rpartition('.')[2]}"
        peer = ["type", "veth", "peer", "name", "eth0", "netns", str(host.keeper.pid)]
        self.switch.ip("link", "add", port, *peer)
        self.switch.ip("link", "set", port, "master", "bridge")
        self.switch.ip("link", "set", port, "up")
        host.ip("address", "add", f"{self.addresses[name]}/24", "dev", "eth0")
        host.ip("link", "set", "eth0", "up")

    def add(self, name):
        """Another host. If there was one of this name, the name means the new one from now on."""
        self.former += [self.hosts[name]] if name in self.hosts else []
        self.give_address(name)
        self.connect(name)

    def unplug(self, name):
        """Cuts a host off from all others. Nobody is told."""
        self.switch.ip("link", "set", self.ports[name], "down")

    def plug(self, name):
        self.switch.ip("link", "set", self.ports[name], "up")

    def part(self, *names):
        """Cuts these hosts off from all others, but not from each other."""
        for name in names:
            self.switch.ip("link", "set", self.ports[name], "master", "apart")

    def join(self, *names):
        for name in names:
            self.switch.ip("link", "set", self.ports[name], "master", "bridge")

    def close(self):
        for host in [*self.hosts.values(), *self.former, self.switch]:
            host.close()
