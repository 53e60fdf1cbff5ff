"""TCPStore's wire, for what no stock client would send or could tell apart."""

import socket
import struct

from servers import HOST, PATIENCE

VALIDATE = b"\x00" + struct.pack("=I", 0x3C85F7CE)
CANCEL_WAIT = b"\x0c"
RELEASED, CANCELLED = b"\x00", b"\x01"


def text(value):
    return struct.pack("=Q", len(value)) + value


def ping(nonce):
    return b"\x0d" + nonce


def set_(key, value):
    return b"\x01" + text(key) + text(value)


def wait(*keys):
    return b"\x06" + struct.pack("=Q", len(keys)) + b"".join(map(text, keys))


def push(key, value):
    return b"\x0e" + text(key) + text(value)


def pop(key):
    return b"\x0f" + text(key)


def barrier(key, world_size):
    return b"\x12" + text(key) + struct.pack("=q", world_size)


class Wire:
    """A connection. After `greet`, what is sent and received is up to the test."""

    def __init__(self, server):
        self.socket = socket.create_connection((HOST, server.port), PATIENCE.total_seconds())
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def greet(self):
        return self.send(VALIDATE).settle()

    def send(self, *requests):
        self.socket.sendall(b"".join(requests))
        return self

    def receive(self, length):
        received = b""
        while len(received) < length:
            part = self.socket.recv(length - len(received))
            if not part:
                raise ConnectionError(f"closed after {received!r}")
            received += part
        return received

    def settle(self):
        """Returns when the server has done all that was sent, and has nothing else to say. It answers in
        order, so whatever it said before is found in front of the answer to a ping."""
        assert self.send(ping(b"here")).receive(4) == b"here"
        return self

    def said(self):
        """What the server has said of its own accord since it was last listened to."""
        self.send(ping(b"here"))
        received = b""
        while not received.endswith(b"here"):
            received += self.receive(1)
        return received.removesuffix(b"here")

    def is_closed(self):
        """Waits for the server to close the connection, or to say something."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
