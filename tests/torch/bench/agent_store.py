"""AgentStore against the server of PyTorch's TCPStore, under stock clients."""

import time

import wire
from servers import AgentStore, StockServerProcess
from wire import Wire

from . import builds
from .report import OURS, STOCK, Report

LATENCIES = [("add", 4000), ("get", 2000), ("set, then add", 2000), ("1,000 sets, then add", 20)]


def servers():
    return {OURS: AgentStore(builds.profile), STOCK: StockServerProcess()}


def in_turns(number):
    """Now the one first, now the other."""
    return (OURS, STOCK) if number % 2 else (STOCK, OURS)


def stop(running):
    for server in running.values():
        server.stop()


def measure(report, workers, rounds, say, share=1.0):
    """With a share of all calls, and of the seconds for which rates are taken."""
    running = servers()
    try:
        say("nothing yet, to warm up")
        for side, server in running.items():
            calls(Report(), workers, side, server.port, share)
        for number in range(rounds):
            say(f"AgentStore, round {number + 1} of {rounds}")
            for side in in_turns(number):
                calls(report, workers, side, running[side].port, share)
                crowd(report, side, running[side])
    finally:
        stop(running)
    for number in range(rounds):
        say(f"memory, round {number + 1} of {rounds}")
        fresh = servers()
        try:
            for side in in_turns(number):
                memory(report, side, fresh[side])
        finally:
            stop(fresh)


def calls(report, workers, side, port, share):
    for operation, count in LATENCIES:
        ((median, p99),) = workers.run(1, "tcp_latency", port, operation, max(1, int(count * share)))
        report.add(f"{operation}, median µs", side, median)
        report.add(f"{operation}, p99 µs", side, p99)
    # All processes in either case: the calls of one process's threads get in each other's way, but 64 processes of
    # PyTorch would not fit into many a machine.
    count = len(workers.processes)
    for operation in ("add", "get"):
        for clients in (8, 64):
            rates = workers.run(count, "tcp_throughput", port, operation, clients // count, share)
            report.add(f"{operation}/s, {clients} clients", side, sum(rates), more_is_better=True)


def connect(server, count):
    """That many connections which have been answered, by plain sockets."""
    connections = [Wire(server).send(wire.VALIDATE, wire.ping(b"here")) for _ in range(count)]
    for connection in connections:
        assert connection.receive(4) == b"here"
    return connections


def crowd(report, side, server):
    """A thousand at once, by plain sockets: a thousand stock clients would keep the machine busy themselves."""
    begun = time.perf_counter()
    connections = connect(server, 1024)
    report.add("connect 1,024, ms", side, (time.perf_counter() - begun) * 1e3)

    key = b"/barrier %d" % time.monotonic_ns()
    request = wire.barrier(key, 1000)
    begun = time.perf_counter()
    for connection in connections[:999]:
        connection.send(request)
    # All have arrived when the server answers each of them.
    for connection in connections[:999]:
        connection.settle()
    complete = time.perf_counter()
    connections[999].send(request)
    for connection in connections[:1000]:
        assert connection.receive(1) == wire.RELEASED
    ended = time.perf_counter()
    report.add("barrier of 1,000, first call to last release, ms", side, (ended - begun) * 1e3)
    report.add("barrier of 1,000, last call to last release, ms", side, (ended - complete) * 1e3)
    for connection in connections:
        connection.close()


def resident(server):
    """The memory of a server's process, in KiB."""
    with open(f"/proc/{server.process.pid}/status") as status:
        (line,) = (line for line in status if line.startswith("VmRSS:"))
    return int(line.split()[1])


def memory(report, side, server):
    before = resident(server)
    # Stock's is that of a Python with PyTorch: what it takes to run it without a worker.
    report.add("memory without clients, MiB", side, before / 1024)
    connections = []
    for count in (1000, 5000):
        connections += connect(server, count - len(connections))
        report.add(f"memory for each of {count:,} connections, KiB", side, (resident(server) - before) / count)
    for connection in connections:
        connection.close()
