"""What is too large, too much, or no number costs the one connection that sent it, as in PyTorch's server."""

import pytest
from observe import CONNECTION_LOST, outcome

MIB = 1 << 20

WRITES = {
    "set": lambda store, value: store.set("key", value),
    "append": lambda store, value: store.append("key", value),
    "multi_set": lambda store, value: store.multi_set(["else", "key"], ["", value]),
    "compare_set": lambda store, value: store.compare_set("key", "", value),
    "queue_push": lambda store, value: store.queue_push("key", value),
}


def after(store, call, *arguments):
    """What a call comes to: without an answer of its own, the loss of the connection shows in the next."""
    first = outcome(call, *arguments)
    return first if first == CONNECTION_LOST else outcome(store.add, "n", 1)


@pytest.mark.parametrize("write", WRITES)
def test_a_value_of_8_mib_passes_and_more_does_not(both, write):
    def scenario(server):
        other = server.connect()
        results = []
        for size in (8 * MIB, 8 * MIB + 1, 9 * MIB):
            store = server.connect()
            results.append(after(store, WRITES[write], store, b"x" * size))
            if size == 8 * MIB:
                value = other.queue_pop("key") if write == "queue_push" else other.get("key")
                results.append(value == b"x" * size)
                other.delete_key("key")
        return results, other.check(["key"]), other.add("n", 1)

    assert both(scenario) == ([1, True, CONNECTION_LOST, CONNECTION_LOST], False, 2)


def test_a_value_grows_beyond_that_in_parts(both):
    def scenario(server):
        store = server.connect()
        for _ in range(3):
            store.append("key", b"x" * 4 * MIB)
        return len(store.get("key")), len(server.connect().multi_get(["key", "key"])[1])

    assert both(scenario) == (12 * MIB, 12 * MIB)


@pytest.mark.parametrize("length, passes", [(8191, True), (8192, False), (9000, False)])
def test_a_key_of_8192_bytes_passes_and_more_does_not(both, length, passes):
    """The client puts a `/` in front of each."""

    def scenario(server):
        store, other = server.connect(), server.connect()
        key = "k" * length
        return after(store, store.set, key, "value"), other.num_keys(), other.add("n", 1)

    assert both(scenario) == ((1, 2, 2) if passes else (CONNECTION_LOST, 0, 1))


@pytest.mark.parametrize("count, passes", [(131_072, True), (131_073, False)])
def test_131072_keys_pass_and_more_do_not(both, count, passes):
    def scenario(server):
        other = server.connect()
        other.set("key", "value")
        results = []
        for call in ("check", "multi_get"):
            store = server.connect()
            result = outcome(getattr(store, call), ["key"] * count)
            results.append(len(result) if call == "multi_get" else result)
        return results, other.add("n", 1)

    assert both(scenario) == ([True, count] if passes else [CONNECTION_LOST, len(CONNECTION_LOST)], 1)


@pytest.mark.parametrize("text", ["", "abc", " ", "-", "99999999999999999999"])
def test_adding_to_what_is_no_number_costs_the_connection(both, text):
    def scenario(server):
        store, other = server.connect(), server.connect()
        store.set("text", text)
        return outcome(store.add, "text", 1), outcome(store.get, "text"), other.get("text"), other.add("n", 1)

    assert both(scenario) == (CONNECTION_LOST, CONNECTION_LOST, text.encode(), 1)
