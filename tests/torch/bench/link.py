"""A worker whose life depends on those of its peers: rank 0 has a connection to each, and whoever sees one break fails.

A host that vanishes breaks no connection, as it would break none of a collective before its time-out.
"""

import os
import select
import socket
import time

import rallypoint

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
KEY = "where rank 0 listens"


def own_address(peer):
    """The address from which the peer is reached."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, 9))
        return probe.getsockname()[0]


def connect(store):
    """A connection to rank 0. Where the store outlives a group, what it says may be of the last one."""
    while True:
        host, port = store.get(KEY).decode().split()
        try:
            connection = socket.create_connection((host, int(port)), timeout=1)
        except OSError:
            time.sleep(0.1)
            continue
        connection.settimeout(None)
        return connection


def main():
    master = os.environ["MASTER_ADDR"]
    store = rallypoint.TcpStore(master, int(os.environ["MASTER_PORT"]))
    if RANK == 0:
        host = own_address(socket.gethostbyname(master))
        with socket.create_server(("", 0)) as listener:
            store.set(KEY, f"{host} {listener.getsockname()[1]}".encode())
            connections = [listener.accept()[0] for _ in range(WORLD - 1)]
    else:
        connections = [connect(store)]
    # Nothing is ever sent: what can be read is an end.
    select.select(connections, [], [])
    raise SystemExit("a peer is gone")


main()
