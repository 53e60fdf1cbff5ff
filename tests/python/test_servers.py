"""The servers: ours in this process, and a real etcd as a child."""

import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

import rallypoint


def answers(endpoint):
    store = rallypoint.EtcdStore(rallypoint.Client(endpoint, read_timeout=5), "/trial")
    return store.add("visits", 1)


def test_a_server_ends_when_it_is_stopped():
    server = rallypoint.Server()
    host, port = server.address
    assert server.endpoint == f"{host}:{port}" and answers(server.endpoint) == 1
    server.stop()
    server.stop()
    # The port is free again, and what was written is gone.
    with rallypoint.Server(server.endpoint) as again:
        assert answers(again.endpoint) == 1
        with pytest.raises(rallypoint.ServerError, match="in use"):
            rallypoint.Server(again.endpoint)


def test_a_data_directory_keeps_what_was_written(tmp_path):
    for visit in (1, 2):
        with rallypoint.Server(data_dir=tmp_path) as server:
            assert answers(server.endpoint) == visit


@pytest.mark.parametrize("options", [{"listen": "nowhere"}, {"user": "u"}, {"cert": "/x"}, {"cert": "/x", "key": "/x"}])
def test_wrong_options(options):
    with pytest.raises(rallypoint.ParameterError, match="give"):
        rallypoint.Server(**options)


@pytest.mark.usefixtures("each_etcd")
def test_a_real_etcd(tmp_path):
    etcd = rallypoint.EtcdServer(data_dir=str(tmp_path))
    with pytest.raises(rallypoint.EtcdServerError, match="not running"):
        etcd.get_port()
    etcd.start(timeout=60, num_retries=3)
    assert etcd.get_endpoint() == f"{etcd.get_host()}:{etcd.get_port()}"
    assert rallypoint.EtcdStore(etcd.get_client(), "/trial").add("visits", 1) == 1
    etcd.stop()
    etcd.stop()
    with rallypoint.EtcdServer(tmp_path) as again:
        assert answers(again.get_endpoint()) == 2


@pytest.mark.usefixtures("each_etcd")
def test_its_output_goes_where_it_is_told(tmp_path):
    log = tmp_path / "log"
    with open(log, "w") as file:
        etcd = rallypoint.EtcdServer()
        etcd.start(stderr=file)
        etcd.stop()
    assert "etcd" in log.read_text()


def test_a_standard_error_that_is_a_socket(python):
    """As under systemd. It cannot be opened again, and need not be."""
    ours, theirs = socket.socketpair()
    program = """
import sys, rallypoint
etcd = rallypoint.EtcdServer()
etcd.start(stderr=sys.stderr)
etcd.stop()
"""
    with ours:
        with theirs:
            process = python(program, stderr=theirs)
        said = b"".join(iter(lambda: ours.recv(1 << 16), b""))
        assert process.wait(60) == 0 and b"etcd" in said, said


@pytest.mark.usefixtures("each_etcd")
def test_an_etcd_that_is_started_twice():
    """The second start is refused, whether the first is done or not, and the first is not disturbed."""
    etcd = rallypoint.EtcdServer()
    with ThreadPoolExecutor(4) as pool:
        starts = [pool.submit(etcd.start) for _ in range(4)]
        errors = [start.exception() for start in starts]
    assert errors.count(None) == 1 and sum(isinstance(error, rallypoint.ParameterError) for error in errors) == 3
    assert answers(etcd.get_endpoint()) == 1
    etcd.stop()
    with pytest.raises(rallypoint.EtcdServerError, match="start it first"):
        etcd.get_endpoint()
    # A start that failed may be tried again.
    with pytest.raises(rallypoint.EtcdServerError, match="attempts"):
        etcd.start(num_retries=0)
    etcd.start()
    assert answers(etcd.get_endpoint()) == 1
    etcd.stop()


def test_an_etcd_that_is_not_there(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_ETCD_BINARY_PATH", "/nowhere")
    with pytest.raises(RuntimeError, match="TORCHELASTIC_ETCD_BINARY_PATH"):
        rallypoint.EtcdServer().start()


@pytest.mark.usefixtures("each_etcd")
def test_it_does_not_outlive_its_program(python):
    program = """
import sys, rallypoint
etcd = rallypoint.EtcdServer()
etcd.start()
print(etcd.get_endpoint())
sys.stdin.readline()
"""
    owner = python(program)
    endpoint = owner.stdout.readline().strip()
    assert answers(endpoint) == 1
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    with pytest.raises(rallypoint.StoreConnectionError):
        while True:
            answers(endpoint)
