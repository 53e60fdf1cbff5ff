"""Waiting, being woken, giving up, and the race between the two."""

import random
import time

import pytest
from observe import milliseconds, outcome, together
from servers import PATIENCE
from torch.distributed import DistStoreError, QueueEmptyError

WAKING = {
    "set": lambda store: store.set("key", "1"),
    "add": lambda store: store.add("key", 1),
    "append": lambda store: store.append("key", "1"),
    "compare_set": lambda store: store.compare_set("key", "", "1"),
    "multi_set": lambda store: store.multi_set(["else", "key"], ["", "1"]),
}


@pytest.mark.parametrize("operation", WAKING)
def test_every_write_wakes_who_waits(both, operation):
    def scenario(server):
        waiting = [server.connect() for _ in range(3)]
        writer = server.connect()

        def write():
            time.sleep(0.05)  # Long enough for the others to wait, as a rule; it is right without, too.
            WAKING[operation](writer)

        return together(
            lambda: waiting[0].get("key"),
            lambda: waiting[1].wait(["key"]),
            lambda: waiting[2].multi_get(["key", "key"]),
            write,
        )

    assert both(scenario) == [b"1", None, [b"1", b"1"], None]


def test_waiting_for_several_keys(both):
    def scenario(server):
        waiting, writer = server.connect(), server.connect()

        def write():
            for key in ("c", "a", "b"):
                time.sleep(0.02)
                writer.set(key, key)

        return together(lambda: waiting.multi_get(["a", "b", "c", "a"]), write)

    assert both(scenario) == [[b"a", b"b", b"c", b"a"], None]


def test_what_exists_is_not_waited_for(both):
    def scenario(server):
        store = server.connect()
        store.set("key", "")
        store.queue_push("queue", "")
        return outcome(store.wait, []), outcome(store.wait, ["key", "queue"], PATIENCE)

    assert both(scenario) == (None, None)


def test_a_time_out_names_the_keys(both):
    def scenario(server):
        store = server.connect(timeout=milliseconds(30))
        store.set("there", "")
        return (
            [
                outcome(store.get, "missing"),
                outcome(store.multi_get, ["there", "missing"]),
                outcome(store.wait, ["missing", "there"]),
                outcome(store.wait, ["missing"], milliseconds(40)),
                outcome(store.queue_pop, "queue"),
                outcome(store.barrier, "all", 2),
                outcome(store.barrier, "some", 2, milliseconds(40)),
            ],
            # And the connection is as good as before.
            store.add("n", 1),
        )

    texts = [
        "wait timeout after 30ms, keys: /missing",
        "wait timeout after 30ms, keys: /there, /missing",
        "wait timeout after 30ms, keys: /missing, /there",
        "wait timeout after 40ms, keys: /missing",
        "wait timeout after 30ms, keys: /queue",
        "barrier timeout after 30ms, key: all",
        "barrier timeout after 40ms, key: some",
    ]
    assert both(scenario) == ([("DistStoreError", text) for text in texts], 1)


def test_a_barrier(both):
    def scenario(server):
        stores = [server.connect() for _ in range(32)]
        passed = together(*(lambda store=store: store.barrier("all", 32) for store in stores))
        # Counts are kept with the keys, so a late client passes, and a key serves one barrier.
        late = outcome(stores[0].barrier, "all", 32)
        return passed, late, stores[0].get("all"), stores[0].num_keys()

    assert both(scenario) == ([None] * 32, None, b"33", 1)


def test_a_barrier_counts_clients_that_gave_up(both):
    def scenario(server):
        store = server.connect()
        return [outcome(store.barrier, "all", 3, milliseconds(20)) for _ in range(4)]

    gave_up = ("DistStoreError", "barrier timeout after 20ms, key: all")
    assert both(scenario) == [gave_up, gave_up, None, None]


def test_pops_by_many_take_each_value_once(both):
    def scenario(server):
        poppers, pushers = [server.connect() for _ in range(8)], [server.connect() for _ in range(2)]

        def pop(store):
            popped = []
            while len(popped) < 25:
                try:
                    popped.append(int(store.queue_pop("queue")))
                except QueueEmptyError:
                    pass  # Woken, and then somebody else was quicker.
            return popped

        def push(store, values):
            for value in values:
                store.queue_push("queue", str(value))

        outcomes = together(
            *(lambda store=store: pop(store) for store in poppers),
            *(lambda n=n, store=store: push(store, range(n, 200, 2)) for n, store in enumerate(pushers)),
        )
        return sorted(value for popped in outcomes[:8] for value in popped), outcomes[8:]

    assert both(scenario) == (list(range(200)), [None, None])


def test_giving_up_while_the_key_comes(both):
    """The client stops waiting at the very moment the server answers. Both must agree on what was said, or
    every answer after it belongs to another question."""
    rounds, pairs = 500, 4

    def scenario(server):
        def wait(store, pair, seen):
            for number in range(rounds):
                store.set(f"{pair}/turn/{number}", "")
                try:
                    store.wait([f"{pair}/{number}"], milliseconds(1))
                    seen.add("found")
                except DistStoreError:
                    seen.add("gave up")
                assert store.add(f"{pair}/count", 1) == number + 1
                assert store.get(f"{pair}/{number}") == b"%d" % number

        def write(store, pair, chance):
            for number in range(rounds):
                store.wait([f"{pair}/turn/{number}"])
                time.sleep(chance.uniform(0, 0.002))
                store.set(f"{pair}/{number}", str(number))

        seen = set()
        calls = []
        for pair in range(pairs):
            waiting, writer = server.connect(), server.connect()
            chance = random.Random(pair)
            calls.append(lambda store=waiting, pair=pair: wait(store, pair, seen))
            calls.append(lambda store=writer, pair=pair, chance=chance: write(store, pair, chance))
        return together(*calls), sorted(seen)

    assert both(scenario) == ([None] * (2 * pairs), ["found", "gave up"])


def test_giving_up_on_a_barrier_while_it_completes(both):
    rounds = 500

    def scenario(server):
        def meet(store, chance, seen):
            for number in range(rounds):
                time.sleep(chance.uniform(0, 0.002))
                try:
                    store.barrier(f"all/{number}", 2, milliseconds(1))
                    seen.add("met")
                except DistStoreError:
                    seen.add("gave up")
                assert store.add(f"count/{number}", 1) in (1, 2)

        seen = set()
        stores = [server.connect() for _ in range(2)]
        calls = (lambda n=n: meet(stores[n], random.Random(n), seen) for n in range(2))
        results = together(*calls)
        counts = stores[0].multi_get([f"count/{number}" for number in range(rounds)])
        return results, sorted(seen), set(counts)

    assert both(scenario) == ([None, None], ["gave up", "met"], {b"2"})
