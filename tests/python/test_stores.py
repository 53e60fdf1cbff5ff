"""The interface of c10d's store, on each of our stores."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from etcds import on_each, parted

import rallypoint


@pytest.fixture(params=["server", *on_each("etcd"), "tcp"])
def store(request):
    """An empty store: on our server, on a real etcd, on rank 0's."""
    where, version = parted(request.param)
    if where == "tcp":
        with rallypoint.Rendezvous("", "stores", 1, 1) as rendezvous:
            group = rendezvous.next_rendezvous()
            yield rallypoint.TcpStore(group.master_addr, group.master_port)
    elif where == "etcd":
        client = request.getfixturevalue("etcds")(version).get_client()
        yield rallypoint.EtcdStore(client, f"/stores/{time.monotonic_ns()}")
    else:
        client = rallypoint.Client(request.getfixturevalue("server").endpoint)
        yield rallypoint.EtcdStore(client, "/stores")


def test_values(store):
    store.set("text", "ä")
    store.set(b"bytes", b"\0\xff")
    assert store.get("text") == "ä".encode()
    assert store.multi_get([b"text", "bytes"]) == ["ä".encode(), b"\0\xff"]
    store.multi_set(["one", "two"], ["1", b"2"])
    store.append("one", "1")
    assert store.get("one") == b"11"
    assert sorted(store.list_keys()) == ["bytes", "one", "text", "two"]
    assert store.num_keys() == 4
    assert (store.delete_key("two"), store.delete_key("two")) == (True, False)
    assert (store.check(["one"]), store.check(["one", "two"])) == (True, False)
    assert store.has_extended_api()


def test_a_key_that_is_no_text_comes_back_as_one_that_means_the_same(store):
    store.set(b"\xff", "value")
    [key] = store.list_keys()
    assert isinstance(key, str) and store.get(key) == b"value"


def test_comparing_and_adding(store):
    assert store.compare_set("key", "", "first") == b"first"
    assert store.compare_set("key", "other", "second") == b"first"
    assert store.compare_set("key", "first", "second") == b"second"
    assert store.compare_set("none", "other", "second") == b"other"
    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(lambda _: store.add("sum", 1), range(8))) == list(range(1, 9))


def test_queues(store):
    store.queue_push("queue", "one")
    store.queue_push("queue", "two")
    assert store.queue_len("queue") == 2
    assert [store.queue_pop("queue"), store.queue_pop("queue", block=False)] == [b"one", b"two"]
    with pytest.raises(rallypoint.QueueEmptyError, match='the queue "queue" is empty'):
        store.queue_pop("queue", block=False)


def test_waiting_lets_other_threads_run(store):
    waiter = threading.Thread(target=store.wait, args=(["late"], 60))
    waiter.start()
    # If the waiter kept Python to itself, this would never be reached.
    store.set("late", "")
    waiter.join()


def test_time_outs(store):
    assert store.timeout == timedelta(seconds=300)
    store.set_timeout(0.05)
    assert store.timeout == timedelta(milliseconds=50)
    for call in (
        lambda: store.get("key"),
        lambda: store.wait(["key"]),
        lambda: store.wait(["key"], timedelta(milliseconds=10)),
        lambda: store.multi_get(["key"]),
    ):
        with pytest.raises(rallypoint.StoreTimeoutError, match="wait timeout after .*still missing: key"):
            call()
    with pytest.raises(TimeoutError, match="barrier timeout after .*1 of 2 had arrived"):
        store.barrier("meeting", 2, 0.01)
    store.barrier("meeting", 2)
    other = store.clone()
    other.set_timeout(7)
    assert store.timeout == timedelta(milliseconds=50)


def test_wrong_arguments(store):
    with pytest.raises(TypeError, match="give str or bytes, not int"):
        store.set("key", 7)
    with pytest.raises(rallypoint.ParameterError, match="2 keys and 1 values"):
        store.multi_set(["a", "b"], ["c"])
    with pytest.raises(ValueError, match="timeout -1"):
        store.set_timeout(-1)
    with pytest.raises(rallypoint.StoreError, match="no whole number"):
        store.set("word", "seven")
        store.add("word", 1)


@pytest.mark.parametrize("option", ["timeout", "lease_ttl", "node_rank", "is_host", "pasword"])
def test_a_client_takes_no_options_that_do_nothing(option):
    with pytest.raises(rallypoint.ParameterError, match=option):
        rallypoint.Client("127.0.0.1:1", **{option: 5})


def test_a_store_that_is_not_there(free_port):
    with pytest.raises(rallypoint.StoreConnectionError, match="no store to be reached"):
        rallypoint.TcpStore("127.0.0.1", free_port, 0.05)
    lonely = rallypoint.EtcdStore(rallypoint.Client(f"127.0.0.1:{free_port}", read_timeout=0.2), "/x")
    with pytest.raises(ConnectionError, match=f"127.0.0.1:{free_port}"):
        lonely.set("key", "value")
