"""Every operation of a store, by stock clients: the same results from ours as from stock PyTorch's server."""

import pytest
from observe import milliseconds, outcome
from servers import PATIENCE
from torch.distributed import PrefixStore


def test_set_and_get(both):
    def scenario(server):
        one, other = server.connect(), server.connect()
        one.set("key", "first")
        one.set("key", "second")
        one.set("bytes", bytes(range(256)))
        one.set("empty", "")
        # Nothing is sent back for a write, and another connection must see it all the same.
        one.check(["key"])
        return [other.get(key) for key in ("key", "bytes", "empty")]

    assert both(scenario) == [b"second", bytes(range(256)), b""]


def test_add(both):
    def scenario(server):
        store = server.connect()
        results = [store.add("n", amount) for amount in (5, -7, 0, 2**62)]
        store.set("text", "41")
        return results, store.get("n"), store.add("text", 1), store.add("new", 0), store.get("new")

    sum_of_all = 5 - 7 + 2**62
    assert both(scenario) == ([5, -2, -2, sum_of_all], str(sum_of_all).encode(), 42, 0, b"0")


def test_compare_set(both):
    def scenario(server):
        store = server.connect()
        results = [
            store.compare_set("key", "", "a"),  # none, none expected: written
            store.compare_set("key", "wrong", "b"),  # another than expected: not written
            store.compare_set("key", "a", "b"),  # as expected: written
            store.compare_set("key", "", "c"),  # one, none expected: not written
            store.compare_set("none", "expected", "d"),  # none, one expected: not written
        ]
        store.set("empty", "")
        results.append(store.compare_set("empty", "", "e"))
        return results, store.get("key"), store.check(["none"])

    assert both(scenario) == ([b"a", b"a", b"b", b"b", b"expected", b"e"], b"b", False)


def test_append(both):
    def scenario(server):
        store = server.connect()
        for part in ("a", b"\x00", "", "b"):
            store.append("key", part)
        store.append("counter", "4")
        store.append("counter", "1")
        return store.get("key"), store.add("counter", 1)

    assert both(scenario) == (b"a\x00b", 42)


def test_delete_key(both):
    def scenario(server):
        store = server.connect()
        store.set("key", "value")
        return (
            [store.delete_key("key") for _ in range(2)],
            store.check(["key"]),
            outcome(store.wait, ["key"], milliseconds(20)),
        )

    assert both(scenario) == ([True, False], False, ("DistStoreError", "wait timeout after 20ms, keys: /key"))


def test_check(both):
    def scenario(server):
        store = server.connect()
        store.set("a", "")
        store.add("b", 0)
        store.queue_push("queue", "")
        return [store.check(keys) for keys in (["a"], ["a", "b"], ["a", "c"], ["queue"], ["a", "queue", "a"], [])]

    assert both(scenario) == [True, True, False, True, True, True]


def test_num_keys_and_list_keys(both):
    def scenario(server):
        store = server.connect()
        before = store.num_keys(), store.list_keys()
        store.multi_set(["a", "b", "/c", ""], ["1", "2", "3", "4"])
        store.queue_push("queue", "no key")
        store.delete_key("b")
        return before, store.num_keys(), sorted(store.list_keys())

    assert both(scenario) == ((0, []), 3, ["", "/c", "a"])


def test_multi_set_and_multi_get(both):
    def scenario(server):
        store = server.connect()
        store.multi_set(["a", "b", "a"], ["1", b"\x00\xff", "last"])
        store.multi_set([], [])
        return (
            store.multi_get(["b", "a", "b"]),
            store.multi_get([]),
            outcome(store.multi_set, ["a"], []),
            # The request that was refused was never sent.
            store.get("a"),
        )

    refusal = ("DistStoreError", "multiSet keys and values vectors must be of same size")
    assert both(scenario) == ([b"\x00\xff", b"last", b"\x00\xff"], [], refusal, b"last")


def test_queues(both):
    def scenario(server):
        store, other = server.connect(), server.connect()
        empty = outcome(store.queue_pop, "queue", False), store.queue_len("queue")
        for value in ("1", b"\x00", ""):
            store.queue_push("queue", value)
        length = store.queue_len("queue")
        popped = [other.queue_pop("queue"), other.queue_pop("queue", False), store.queue_pop("queue", block=True)]
        return empty, length, popped, outcome(other.queue_pop, "queue", False), other.check(["queue"])

    empty = ("QueueEmptyError", "queue is empty")
    assert both(scenario) == ((empty, 0), 3, [b"1", b"\x00", b""], empty, False)


def test_a_queue_and_a_key_of_the_same_name(both):
    def scenario(server):
        store = server.connect()
        store.queue_push("name", "in the queue")
        store.set("name", "of the key")
        return (
            store.num_keys(),
            store.get("name"),
            [store.delete_key("name") for _ in range(2)],
            store.check(["name"]),
            store.queue_pop("name"),
            store.check(["name"]),
        )

    assert both(scenario) == (1, b"of the key", [True, False], True, b"in the queue", False)


def test_clone(both):
    def scenario(server):
        store = server.connect(timeout=milliseconds(40_000))
        clone = store.clone()
        clone.set_timeout(milliseconds(50))
        clone.add("n", 1)
        del store
        return type(clone).__name__, clone.add("n", 1), str(clone.timeout), str(clone.clone().timeout)

    assert both(scenario) == ("TCPStore", 2, "0:00:00.050000", "0:00:00.050000")


def test_extended_api_and_timeout(both):
    def scenario(server):
        store = server.connect(timeout=milliseconds(40_000))
        before = str(store.timeout)
        store.set_timeout(milliseconds(1500))
        return store.has_extended_api(), before, str(store.timeout)

    assert both(scenario) == (True, "0:00:40", "0:00:01.500000")


def test_the_size_of_a_world(both):
    """A client that says how many there are counts itself; nobody but the one who serves waits for them."""

    def scenario(server):
        one = server.connect()
        others = [server.connect(world_size=3) for _ in range(2)]
        counted = one.num_keys()
        quiet = server.connect(world_size=3, wait_for_workers=False)
        quiet.check([])
        return counted, one.num_keys(), one.list_keys(), [store.add("n", 1) for store in (*others, quiet)]

    # The key lies where no client's own keys are, and clients do not list it.
    assert both(scenario) == (1, 1, [], [1, 2, 3])


@pytest.mark.parametrize("key", ["", "/", "init/", "a\0b", "line\nbreak", "√", b"\xff\xfe"])
def test_names_with_any_bytes(both, key):
    def scenario(server):
        store, other = server.connect(), server.connect()
        store.set(key, b"\x00\xff")
        store.queue_push(key, "queue")
        return other.get(key), other.check([key]), other.queue_pop(key), other.delete_key(key), other.num_keys()

    assert both(scenario) == (b"\x00\xff", True, b"queue", True, 0)


def test_a_prefix(both):
    def scenario(server):
        store = server.connect()
        outer = PrefixStore("outer", store)
        inner = PrefixStore("inner", outer)
        store.set("else", "")
        inner.set("a", "1")
        inner.append("a", "2")
        inner.multi_set(["b", "c"], ["3", "4"])
        inner.queue_push("queue", "5")
        return (
            store.get("outer/inner/a"),
            inner.multi_get(["a", "b", "c"]),
            inner.compare_set("b", "3", "6"),
            inner.add("n", 2),
            inner.queue_len("queue"),
            store.queue_pop("outer/inner/queue"),
            inner.delete_key("c"),
            inner.check(["c"]),
            sorted(inner.list_keys()),
            sorted(outer.list_keys()),
            inner.num_keys(),
            inner.has_extended_api(),
            inner.clone().get("a"),
            outcome(inner.queue_pop, "queue", False),
        )

    assert both(scenario) == (
        b"12", [b"12", b"3", b"4"], b"6", 2, 1, b"5", True, False, ["a", "b", "n"],
        ["inner/a", "inner/b", "inner/n"], 4, True, b"12", ("QueueEmptyError", "queue is empty"),
    )  # fmt: skip


def test_a_prefix_passes_time_outs_on(both):
    def scenario(server):
        store = server.connect(timeout=PATIENCE)
        prefixed = PrefixStore("outer", PrefixStore("inner", store))
        prefixed.set_timeout(milliseconds(30))
        return str(store.timeout), outcome(prefixed.get, "key"), outcome(prefixed.barrier, "all", 2, milliseconds(20))

    assert both(scenario) == (
        "0:00:00.030000",
        ("DistStoreError", "wait timeout after 30ms, keys: /inner/outer/key"),
        ("DistStoreError", "wait timeout after 20ms, keys: /inner/outer/all/last_member"),
    )
