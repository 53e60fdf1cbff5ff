"""What a server says byte by byte, and the two ways of PyTorch's server that ours does not copy."""

import pytest
import wire
from wire import CANCELLED, RELEASED, Wire


def greeted(server, count):
    return [Wire(server).greet() for _ in range(count)]


def test_giving_up_is_answered_exactly_once(both):
    def scenario(server):
        waiting, writer = greeted(server, 2)
        said = []

        def says(*requests):
            said.append(waiting.send(*requests).said())

        says(wire.wait(b"/key"), wire.CANCEL_WAIT)
        writer.send(wire.set_(b"/key", b"late")).settle()
        says()  # Nothing: it no longer waits.
        says(wire.wait(b"/key"), wire.CANCEL_WAIT)  # The key is there, so both are answered.
        says(wire.CANCEL_WAIT)  # Of nothing, but answered.
        says(wire.barrier(b"/all", 2), wire.CANCEL_WAIT)
        says(wire.barrier(b"/all", 2))  # It was counted, so it is complete.
        return said

    assert both(scenario) == [CANCELLED, b"", RELEASED + CANCELLED, CANCELLED, CANCELLED, RELEASED]


def test_a_key_counts_once_it_was_written(both):
    """Also if it is deleted while others are still waited for."""

    def scenario(server):
        waiting, writer = greeted(server, 2)
        said = [waiting.send(wire.wait(b"/a", b"/b", b"/b")).said()]
        for request in (wire.set_(b"/a", b""), b"\x08" + wire.text(b"/a")):
            writer.send(request)
        writer.receive(8)
        said.append(waiting.said())
        writer.send(wire.set_(b"/b", b"")).settle()
        said.append(waiting.said())
        return said

    assert both(scenario) == [b"", b"", RELEASED]


def test_a_push_wakes_one(both):
    def scenario(server):
        first, second, writer = greeted(server, 3)
        first.send(wire.wait(b"/queue")).settle()
        second.send(wire.wait(b"/queue")).settle()
        writer.send(wire.push(b"/queue", b"1")).settle()
        # A woken client pops at once. (Otherwise ours wakes the next, and stock does not.)
        popped = first.receive(1), first.send(wire.pop(b"/queue")).receive(17)
        after_one = first.said(), second.said()
        writer.send(wire.push(b"/queue", b"2")).settle()
        return popped, after_one, (first.said(), second.said())

    popped = (1).to_bytes(8, "little") + wire.text(b"1")
    assert both(scenario) == ((RELEASED, popped), (b"", b""), (b"", RELEASED))


def test_requests_in_pieces(both):
    def scenario(server):
        (connection,) = greeted(server, 1)
        requests = wire.set_(b"/key", b"value") + b"\x03" + wire.text(b"/key") + b"\x03" + wire.text(b"/none")
        for byte in requests:
            connection.send(bytes([byte]))
        return connection.receive(8 + 5 + 8), connection.said()

    assert both(scenario) == (wire.text(b"value") + wire.text(b""), b"")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x13",  # The first number that is no request.
        b"\xff",
        wire.VALIDATE,  # A second greeting.
        b"\x01" + (8193).to_bytes(8, "little"),  # A key that is too long, refused before it is sent.
        b"\x01" + wire.text(b"/key") + ((8 << 20) + 1).to_bytes(8, "little"),
        b"\x05" + (131_073).to_bytes(8, "little"),
        b"\x0b" + (2**64 - 1).to_bytes(8, "little"),
    ],
)
def test_what_makes_no_sense_ends_the_connection(both, request_bytes):
    def scenario(server):
        connection, other = greeted(server, 2)
        closed = connection.send(request_bytes).is_closed()
        return closed, other.said()

    assert both(scenario) == (True, b"")


@pytest.mark.parametrize("request_bytes", [wire.ping(b"here"), wire.set_(b"/key", b"value")])
def test_a_stranger_is_sent_away(stock, ours, request_bytes):
    """PyTorch's server keeps the first bytes of a connection that did not greet it, and takes them for requests
    when more come. Ours closes it."""
    with Wire(stock) as stranger:
        stranger.send(request_bytes)
        # When it has answered somebody else twice, it has read what the stranger sent first.
        Wire(stock).greet().settle()
        stranger.settle()
        was_executed = stock.connect().num_keys() == 1 or stranger.receive(4) == b"here"
        assert was_executed
    with Wire(ours) as stranger:
        assert stranger.send(request_bytes).is_closed()
        assert ours.connect().num_keys() == 0


def test_a_push_does_not_wake_who_waits_for_something_else(stock, ours):
    """PyTorch's server goes on to count a client that it woke for a queue among those who wait for it. A later
    push then ends the client's wait for another key, and its `get` returns nothing. Ours forgets it."""

    def scenario(server):
        client, writer = greeted(server, 2)
        client.send(wire.wait(b"/queue")).settle()
        writer.send(wire.push(b"/queue", b"1")).settle()
        assert client.receive(1) == RELEASED
        client.send(wire.pop(b"/queue")).receive(17)
        client.send(wire.wait(b"/missing")).settle()
        writer.send(wire.push(b"/queue", b"2")).settle()
        return client.said()

    assert scenario(stock) == RELEASED
    assert scenario(ours) == b""
