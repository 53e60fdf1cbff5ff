"""Many clients, clients that vanish, and a server that does."""

import subprocess
import sys
import time

import wire
from observe import CONNECTION_LOST, milliseconds, outcome, together
from servers import HOST, AgentStore, StockServerProcess
from wire import Wire


def test_hundreds_of_clients(both):
    clients = 300

    def scenario(server):
        stores = together(*(server.connect for _ in range(clients)))

        def work(rank):
            store = stores[rank]
            store.set(f"rank/{rank}", str(rank))
            arrived = store.add("arrived", 1)
            store.barrier("all", clients)
            neighbour = store.get(f"rank/{(rank + 1) % clients}")
            return arrived, int(neighbour)

        results = together(*(lambda rank=rank: work(rank) for rank in range(clients)))
        return sorted(arrived for arrived, _ in results), [neighbour for _, neighbour in results]

    arrived, neighbours = both(scenario)
    assert arrived == list(range(1, clients + 1))
    assert neighbours == [(rank + 1) % clients for rank in range(clients)]


# Waits in every way there is, and says so when it begins.
WAITS = """
import sys, threading
from datetime import timedelta
from torch.distributed import TCPStore

def store():
    return TCPStore(sys.argv[1], int(sys.argv[2]), is_master=False, timeout=timedelta(seconds=120))

ways = [(store().get, "key"), (store().queue_pop, "queue"), (store().barrier, "all", 3)]
threads = [threading.Thread(target=way, args=arguments) for way, *arguments in ways]
for thread in threads:
    thread.start()
print("waiting", flush=True)
"""


def test_clients_killed_while_they_wait(both):
    def scenario(server):
        command = [sys.executable, "-c", WAITS, HOST, str(server.port)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process, Wire(server) as raw:
            try:
                # This one has certainly begun to wait; the others most likely.
                raw.greet().send(wire.wait(b"/key", b"/queue")).settle()
                assert process.stdout.readline() == b"waiting\n"
                time.sleep(0.1)
            finally:
                process.kill()
        store = server.connect()
        store.set("key", "value")
        store.queue_push("queue", "value")
        # A disconnected client does not take it from connected ones.
        return store.get("key"), store.queue_pop("queue"), store.queue_len("queue"), store.add("n", 1)

    assert both(scenario) == (b"value", b"value", 0, 1)


def test_a_server_that_is_gone():
    def scenario(start):
        with start() as server:
            idle, waiting = server.connect(), server.connect()
            idle.add("n", 1)
            lost, _ = together(lambda: waiting.get("key"), server.kill)
            kind, text = outcome(server.connect, timeout=milliseconds(500))
            later = outcome(idle.add, "n", 1), outcome(idle.set, "key", "")
            return lost, later, kind, text.partition(" after")[0]

    observed = scenario(AgentStore)
    assert observed == scenario(StockServerProcess)
    later = CONNECTION_LOST, CONNECTION_LOST
    assert observed == (CONNECTION_LOST, later, "DistNetworkError", "The client socket has timed out")


def test_clients_of_a_server_that_stops_are_let_go(ours):
    store = ours.connect()
    store.add("n", 1)
    ours.stop()
    assert outcome(store.add, "n", 1) == CONNECTION_LOST
