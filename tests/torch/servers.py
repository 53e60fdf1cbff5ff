"""The servers that are compared: stock PyTorch's, and our AgentStore. Both listen on a free loopback port.

Each is a context manager and gone when its block ends. They have a `port`, and `connect` makes a stock
client, whichever server it is.
"""

import contextlib
import os
import pathlib
import random
import socket
import subprocess
import sys
from datetime import timedelta

HOST = "127.0.0.1"

# How long anything may take that is meant to succeed, on a machine that has other things to do.
PATIENCE = timedelta(seconds=120)

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")


def free_port():
    """A port that is free, and that nobody else takes before it is used: it is not one of those that the system gives
    to clients, and test processes that run side by side pick from different ones."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    ports = range(15000 + number, 32000, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    while True:
        with contextlib.suppress(OSError), socket.create_server((HOST, random.choice(ports))) as listener:
            return listener.getsockname()[1]


class Server:
    """What both servers have in common."""

    port: int

    def connect(self, timeout=PATIENCE, **options):
        from torch.distributed import TCPStore

        return TCPStore(HOST, self.port, is_master=False, timeout=timeout, **options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class StockServer(Server):
    """PyTorch's own server, on libuv, in this process."""

    name = "stock"

    def __init__(self):
        from torch.distributed import TCPStore

        # It would listen on every address of the machine; so it is given a socket that does not.
        listener = socket.create_server((HOST, 0))
        self.port = listener.getsockname()[1]
        options = {
            "is_master": True, "wait_for_workers": False, "timeout": PATIENCE, "master_listen_fd": listener.detach(),
        }  # fmt: skip
        try:
            self._store = TCPStore(HOST, self.port, use_libuv=True, **options)
        except NotImplementedError:
            # In PyTorch 2.6 it takes none, but the server that was there before libuv does.
            self._store = TCPStore(HOST, self.port, use_libuv=False, **options)

    def stop(self):
        self._store = None


class ServerProcess(Server):
    """A server in a process of its own. It says where it listens and ends when its input does, so it
    cannot outlive whoever started it."""

    def __init__(self, command, **environment):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, **environment},
        )  # fmt: skip
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            self.kill()
            raise RuntimeError(f"{command} said {line!r} instead of where it listens")
        self.port = int(line.rpartition(":")[2])

    def stop(self):
        """Ends it the way it is meant to end, unless it has ended already."""
        if self.process.returncode is not None:
            return
        self.process.stdin.close()
        try:
            code = self.process.wait(PATIENCE.total_seconds())
        finally:
            self.kill()
        assert code == 0, f"the server ended with {code}"

    def kill(self):
        """Ends it as a machine that fails would."""
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class AgentStore(ServerProcess):
    """Ours."""

    name = "ours"

    def __init__(self, profile="debug"):
        program = TARGET / profile / "examples" / "agent_store"
        if not program.exists():
            raise FileNotFoundError(f"{program} is not built; `make test-torch` and `make bench-stores` do it")
        super().__init__([program])


class Serve(ServerProcess):
    """Our coordination server, which launchers meet at: no store, and nothing that a stock client can talk to."""

    def __init__(self, profile="debug"):
        super().__init__([TARGET / profile / "rallypoint", "serve", "--listen", f"{HOST}:0", "--stop-at-eof"])


class StockServerProcess(ServerProcess):
    """PyTorch's own server, in a process of its own."""

    name = "stock"

    def __init__(self):
        super().__init__([sys.executable, __file__])


if __name__ == "__main__":
    with StockServer() as server:
        print(f"listening on {HOST}:{server.port}", flush=True)
        sys.stdin.read()
