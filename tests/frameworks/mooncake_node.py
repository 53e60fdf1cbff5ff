"""A process of Mooncake, which finds others at an etcd. Its arguments are a role, its name, the etcd, and of the role:

- `target` has a text in its memory, and prints where, until its input ends.
- `reader TARGET ADDRESS` prints what the target has there.
- `store` does what each line of its input says: `put KEY`, or `get KEY`.
"""

import ctypes
import sys
import time

TEXT = b"the text of the target"
PATIENCE = 60


def engine(name, etcd):
    from mooncake.engine import TransferEngine

    engine = TransferEngine()
    assert engine.initialize(name, etcd, "tcp", "") == 0
    memory = ctypes.create_string_buffer(4096)
    assert engine.register_memory(ctypes.addressof(memory), len(memory)) == 0
    return engine, memory


def target(name, etcd):
    _engine, memory = engine(name, etcd)
    memory.value = TEXT
    print(ctypes.addressof(memory), flush=True)
    sys.stdin.read()


def reader(name, etcd, target, at):
    reading, memory = engine(name, etcd)
    assert reading.transfer_sync_read(target, ctypes.addressof(memory), int(at), len(TEXT)) == 0
    print(memory.value.decode(), flush=True)


def repeat(call, succeeded):
    """The first result that is a success."""
    end = time.monotonic() + PATIENCE
    while True:
        result = call()
        if succeeded(result):
            return result
        assert time.monotonic() < end, f"not within {PATIENCE} s: the last result is {result}"
        time.sleep(0.1)


def store(name, etcd):
    from mooncake.store import MooncakeDistributedStore

    store = MooncakeDistributedStore()
    # A leader takes clients once the lease of a predecessor would be over.
    repeat(lambda: store.setup(name, etcd, 16 << 20, 16 << 20, "tcp", "", etcd), lambda code: code == 0)
    for line in sys.stdin:
        what, key = line.split()
        if what == "put":
            repeat(lambda: store.put(key, f"value of {key}".encode()), lambda code: code == 0)
            print("put", flush=True)
        else:
            print(repeat(lambda: store.get(key), bool).decode(), flush=True)


{"target": target, "reader": reader, "store": store}[sys.argv[1]](*sys.argv[2:])
