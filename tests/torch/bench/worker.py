"""A process with stock clients. It does what the lines on its input say, and ends when they do.

A line is `[job, arguments]`. Its clients connect; it says so; it is told to go; it reports. So the clients of all
processes begin together.
"""

import json
import sys
import threading
import time
from datetime import timedelta

import etcd
from servers import HOST
from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous.etcd_store import EtcdStore

PATIENCE = timedelta(seconds=120)


def tcp_store(port):
    return TCPStore(HOST, port, is_master=False, timeout=PATIENCE)


def etcd_store(port, prefix):
    return EtcdStore(etcd.Client(host=HOST, port=port, allow_reconnect=True), prefix, PATIENCE)


def percentiles(times):
    times.sort()
    return [times[len(times) * part // 100] * 1e6 for part in (50, 99)]


def timed(call, count):
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return percentiles(times)


def in_threads(calls):
    results = [None] * len(calls)

    def run(index):
        results[index] = calls[index]()

    threads = [threading.Thread(target=run, args=[index]) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


# What a stock client does. A set is not answered; so its time is taken with an add behind it, which is, and
# in a row of a thousand with one add at the end.
def set_then_add(store):
    store.set("key", "value")
    store.add("n", 1)


def thousand_sets(store):
    for _ in range(1000):
        store.set("key", "value")
    store.add("n", 1)


OPERATIONS = {
    "add": lambda store: store.add("n", 1),
    "get": lambda store: store.get("key"),
    "set, then add": set_then_add,
    "1,000 sets, then add": thousand_sets,
}


def tcp_latency(port, operation, count):
    store = tcp_store(port)
    store.set("key", "value")
    yield
    timed(lambda: OPERATIONS[operation](store), max(1, count // 10))
    yield timed(lambda: OPERATIONS[operation](store), count)


def tcp_throughput(port, operation, clients, seconds):
    stores = [tcp_store(port) for _ in range(clients)]
    stores[0].set("key", "value")
    yield

    def load(store):
        done, call = 0, OPERATIONS[operation]
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            call(store)
            done += 1
        return done

    yield sum(in_threads([lambda store=store: load(store) for store in stores])) / seconds


def etcd_set(port, prefix, count):
    store = etcd_store(port, prefix)
    yield
    yield timed(lambda: store.set("key", "value"), count)


def etcd_get(port, prefix, keys, count):
    store = etcd_store(port, prefix)
    for number in range(keys):
        store.set(f"key {number}", "value")
    yield
    yield timed(lambda: store.get("key 0"), count)


def etcd_wait(port, prefix, count):
    reader, writer = etcd_store(port, prefix), etcd_store(port, prefix)
    yield
    times = []
    for number in range(count):

        def read():
            reader.get(f"key {number}")
            return time.perf_counter()

        def write():
            time.sleep(0.02)  # By then the other waits, as a rule.
            begun = time.perf_counter()
            writer.set(f"key {number}", "value")
            return begun

        answered, begun = in_threads([read, write])
        times.append(answered - begun)
    yield percentiles(times)


def etcd_add(port, prefix, clients):
    stores = [etcd_store(port, prefix) for _ in range(clients)]
    yield
    begun = time.monotonic()  # The same in all processes of a machine.
    sums = in_threads([lambda store=store: store.add("counter", 1) for store in stores])
    yield sums, begun, time.monotonic()


JOBS = {job.__name__: job for job in (tcp_latency, tcp_throughput, etcd_set, etcd_get, etcd_wait, etcd_add)}


def main():
    for line in sys.stdin:
        name, arguments = json.loads(line)
        job = JOBS[name](*arguments)
        next(job)
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps(next(job)), flush=True)
        job.close()


if __name__ == "__main__":
    main()
