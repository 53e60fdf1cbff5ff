"""Programs that only want an etcd, with `rallypoint serve`: stock Dynamo, and Mooncake's engine, masters and store.

They run on two hosts, because some of them listen at all addresses, and Mooncake refuses loopback.
"""

import base64
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest
from conftest import RALLYPOINT
from hosts import TARGET, Network, until

HERE = pathlib.Path(__file__).parent
ETCDCTL = os.environ.get("RALLYPOINT_ETCDCTL", str(TARGET / "tools" / "etcd-3.5" / "etcdctl"))
PASSWORD = "of this test"
# Found without importing it, which loads its libraries.
MOONCAKE = pathlib.Path(importlib.util.find_spec("mooncake").submodule_search_locations[0])


class Programs:
    """A server on the host `one`, and its clients on both hosts."""

    def __init__(self, network, directory):
        self.network = network
        self.directory = directory
        self.started = []
        self.user = []
        # What Mooncake is linked with, if scripts/test-tools had to fetch it.
        fetched = {str(file.parent) for file in (TARGET / "tools" / "libibverbs").rglob("*.so.*")}
        inherited = os.environ.get("LD_LIBRARY_PATH")
        paths = [*sorted(fetched), *([inherited] if inherited else [])]
        # A server in memory that is killed leaves a note for the next one on its port.
        self.environment = {"TMPDIR": str(directory), "LD_LIBRARY_PATH": ":".join(paths)}

    def start(self, host, name, *command, talks=False, **environment):
        """Starts a program on a host. What it says goes to its log, unless the test talks with it."""
        with open(self.directory / f"{name}.log", "ab") as log:
            command = self.network.hosts[host].enter(*command, directory=self.directory)
            environment = {**os.environ, **self.environment, **environment}
            output = subprocess.PIPE if talks else log
            pipes = {"stdin": subprocess.PIPE, "stdout": output, "stderr": log}
            process = subprocess.Popen(command, env=environment, text=True, **pipes)
        self.started.append(process)
        return process

    def serve(self, *options):
        ready = self.directory / "ready"
        ready.unlink(missing_ok=True)
        listen = ["--listen", "0.0.0.0:2379", "--ready-file", ready, "--stop-at-eof"]
        server = self.start("one", "server", RALLYPOINT, "serve", *listen, *options)
        until("the server answers", ready.exists, lambda: server.poll() is not None and self.said())
        return server

    def said(self):
        """The logs of all programs, for a failure."""
        return "".join(f"{file.name}:\n{file.read_text()[-3000:]}" for file in sorted(self.directory.glob("*.log")))

    def etcdctl(self, *words):
        command = [ETCDCTL, "--endpoints", "one:2379", *self.user, *words, "--write-out", "json"]
        entered = self.network.hosts["two"].enter(*command)
        said = subprocess.run(entered, env={**os.environ, "ETCDCTL_API": "3"}, capture_output=True, text=True)
        assert said.returncode == 0, said.stderr
        return json.loads(said.stdout)

    def keys(self, prefix=""):
        """Values and leases of the keys that begin so, as any other client sees them."""
        pairs = self.etcdctl("get", "--prefix", prefix).get("kvs", [])
        decoded = {base64.b64decode(pair["key"]).decode(): pair for pair in pairs}
        return {key: (base64.b64decode(pair["value"]).decode(), pair.get("lease", 0)) for key, pair in decoded.items()}

    def wait(self, what, condition):
        return until(what, condition, about=self.said)


@pytest.fixture
def programs(tmp_path):
    network = Network(tmp_path, ["one", "two"])
    programs = Programs(network, tmp_path)
    yield programs
    network.close()
    for process in programs.started:
        with process:
            pass  # It has ended: this closes the pipes.


def test_dynamo(programs):
    """A worker is found while its lease lasts, and it lasts as long as the worker, also beyond the server."""
    (programs.directory / "password").write_text(PASSWORD)
    options = ["--data-dir", programs.directory / "data", "--user", "root", "--password-file", "password"]
    server = programs.serve(*options)
    programs.user = ["--user", f"root:{PASSWORD}"]
    seen = programs.directory / "seen"

    def node(host, name, *words, lease):
        variables = {"ETCD_ENDPOINTS": "http://one:2379", "ETCD_LEASE_TTL": str(lease)}
        user = {"ETCD_AUTH_USERNAME": "root", "ETCD_AUTH_PASSWORD": PASSWORD}
        return programs.start(host, name, sys.executable, HERE / "dynamo_node.py", *words, **variables, **user)

    def found(*names):
        """The client reaches these workers and no others; their instances."""

        def reached():
            instances = json.loads(seen.read_text()) if seen.exists() else {}
            wanted = sorted(f"{name} answers hello" for name in names)
            return sorted(instances.values()) == wanted and (instances or True)

        return programs.wait(f"the client has found {names}", reached)

    def renewed(instance):
        """The rest of this lease grows: somebody keeps it alive."""
        rests = []

        def grows():
            rests.append(programs.etcdctl("lease", "timetolive", instance)["ttl"])
            assert rests[-1] > 0, "the lease is over"
            return rests[-1] > min(rests)

        programs.wait(f"lease {instance} is kept alive", grows)

    node("two", "client", "client", seen, lease=30)
    first = node("one", "first", "worker", "first", lease=30)
    second = node("two", "second", "worker", "second", lease=10)
    instances = found("first", "second")
    # An instance has the number of its lease.
    keys = programs.keys("v1/instances/")
    assert {key.rsplit("/", 1)[1] for key in keys} == set(instances)
    assert {key.rsplit("/", 1)[0] for key in keys} == {"v1/instances/test/backend/generate"}
    assert all(lease == int(key.rsplit("/", 1)[1], 16) for key, (_, lease) in keys.items())

    # Nobody keeps the lease of a killed worker alive.
    second.kill()
    kept = found("first")

    # Keys and leases are on disk, and clients come back.
    server.kill()
    server.wait()
    programs.serve(*options)
    third = node("two", "third", "worker", "third", lease=600)
    assert kept.keys() < found("first", "third").keys()
    renewed(*kept)
    assert first.poll() is None, "a worker of Dynamo ends when it loses its lease"

    # A worker that ends revokes its lease.
    third.send_signal(signal.SIGTERM)
    found("first")
    assert list(programs.keys("v1/instances/")) == [f"v1/instances/test/backend/generate/{next(iter(kept))}"]


def test_mooncake(programs):
    """Engines find each other's memory, and a standby master takes over what the leader has written."""
    programs.serve()

    def master(host):
        meeting = ["--enable_ha=true", "--ha_backend_type=etcd", "--ha_backend_connstring=one:2379"]
        command = [MOONCAKE / "mooncake_master", *meeting, "--enable_oplog=true", f"--rpc_address={host}"]
        return programs.start(host, f"master-{host}", *command)

    def node(host, role, *words):
        name = f"{host}:{12345 + len(programs.started)}"
        command = [sys.executable, HERE / "mooncake_node.py", role, name, "etcd://one:2379", *words]
        return name, programs.start(host, role, *command, talks=True)

    def tell(process, said):
        process.stdin.write(f"{said}\n")
        process.stdin.flush()

    def line(process):
        said = process.stdout.readline().strip()
        assert said, programs.said()
        return said

    def leader():
        return programs.keys("mooncake-store/mooncake_cluster/").get("mooncake-store/mooncake_cluster/master_view")

    first = master("one")
    address, lease = programs.wait("there is a leader", leader)
    assert address == "one:50051" and lease != 0
    master("two")
    _, store = node("two", "store")
    tell(store, "put it")

    # Engines do without masters. Their keys have no leases.
    name, target = node("one", "target")
    at = line(target)
    written = programs.keys("mooncake/")
    assert written[f"mooncake/ram/{name}"][1] == written[f"mooncake/rpc_meta/{name}"][1] == 0
    _, reader = node("two", "reader", name, at)
    assert line(reader) == "the text of the target"
    target.stdin.close()
    assert target.wait(60) == 0 and reader.wait(60) == 0
    assert not any(name in key for key in programs.keys("mooncake/")), "an engine removes its keys"

    # What the store has done is in the leader's log, from which the standby knows it.
    assert line(store) == "put"
    assert any(key.startswith("/oplog/mooncake_cluster/batches/") for key in programs.keys("/oplog/"))
    first.kill()
    programs.wait("the standby leads", lambda: (leader() or [None])[0] == "two:50051")
    tell(store, "get it")
    assert line(store) == "value of it"
