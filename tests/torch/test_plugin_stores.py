"""`rallypoint.torch`: our stores and backend as PyTorch's C++ and Python use them, and under the names of PyTorch's."""

import copy
import doctest
import gc
import inspect
import os
import pickle
import re
import subprocess
import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from observe import together
from servers import ROOT, TARGET
from torch.distributed.elastic.rendezvous import RendezvousConnectionError, RendezvousParameters
from torch.distributed.elastic.rendezvous import etcd_rendezvous_backend as stock_backend
from torch.distributed.elastic.rendezvous import etcd_server as stock_server
from torch.distributed.elastic.rendezvous import etcd_store as stock_store
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler as create_dynamic_handler

import rallypoint
import rallypoint.torch as ours
from rallypoint._torch_store import TorchStore


@pytest.fixture
def server():
    with rallypoint.Server() as server:
        yield server


@pytest.fixture
def store(server):
    return ours.EtcdStore(server.endpoint, "/store", timedelta(seconds=60))


def test_pytorchs_own_test_of_stores_in_python(store):
    dist._test_python_store(store)


def test_every_call_from_c_plus_plus(server):
    """A PrefixStore is C++ and calls back into ours; nothing else refers to ours, and nothing may collect it."""
    part = dist.PrefixStore("part", ours.EtcdStore(server.endpoint, "/store"))
    gc.collect()
    part.set("key", "value")
    assert part.get("key") == b"value"
    assert part.add("sum", 2) == 2
    assert part.compare_set("key", "value", "other") == b"other"
    part.append("key", "!")
    part.multi_set(["one", "two"], ["1", "2"])
    assert part.multi_get(["one", "key"]) == [b"1", b"other!"]
    assert part.check(["one", "two"]) and not part.check(["three"])
    part.wait(["one"])
    part.wait(["one"], timedelta(seconds=1))
    assert part.num_keys() == 4
    assert part.delete_key("one")
    assert part.has_extended_api()
    if hasattr(dist.Store, "clone"):  # PyTorch 2.6 has none.
        other = part.clone()
        gc.collect()
        assert other.get("two") == b"2"


def test_a_store_of_ours_that_is_there_already(server):
    """As the agents have it, where rank 0 serves none: PyTorch's errors and time-outs, and copies."""
    native = rallypoint.EtcdStore(rallypoint.Client(server.endpoint), "/store", timeout=900)
    store = TorchStore(native, timedelta(milliseconds=50))
    dist._test_python_store(store)
    other = dist.PrefixStore("part", store)
    if hasattr(dist.Store, "clone"):
        other = other.clone()
        gc.collect()
    other.set("key", "value")
    assert store.get("part/key") == b"value"
    for part in (store, other):
        with pytest.raises(dist.DistStoreError, match="wait timeout after .*still missing"):
            part.get("never")
    assert TorchStore(native.clone()).timeout == timedelta(seconds=300)


def test_copies_are_no_connections(server):
    """However it was said where the etcd is: a copy needs no client of its own."""
    store = ours.EtcdStore(server.endpoint, "/store")
    store.set("key", "value")
    before = len(os.listdir("/proc/self/fd"))
    copies = [store.clone() for _ in range(20)]
    assert {copy.get("key") for copy in copies} == {b"value"}
    assert len(os.listdir("/proc/self/fd")) < before + 20


def test_what_only_python_can_call(store):
    store.queue_push("queue", "item")
    assert store.queue_len("queue") == 1 and store.queue_pop("queue") == b"item"
    store.set("key", "value")
    assert store.list_keys() == ["key"]
    store.barrier("meeting", 1)


def test_time_outs_are_pytorchs_errors_and_ours(store):
    store.set_timeout(timedelta(milliseconds=50))
    part = dist.PrefixStore("part", store)
    for call in (lambda: store.get("key"), lambda: part.get("key"), lambda: part.wait(["key"])):
        with pytest.raises(dist.DistStoreError, match="wait timeout after .*still missing") as raised:
            call()
        assert isinstance(raised.value, rallypoint.StoreTimeoutError)
    # PyTorch 2.6 has no queues.
    with pytest.raises(getattr(dist, "QueueEmptyError", dist.DistStoreError)):
        store.queue_pop("queue", block=False)


def test_a_process_group_on_it(server):
    """`init_process_group(store=…)`, in as many threads as ranks: gloo meets in our store."""

    def rank(number):
        store = ours.EtcdStore(server.endpoint, "/group")
        group = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), number, 2, timedelta(seconds=60))
        total = torch.tensor([number + 1.0])
        group.allreduce([total]).wait()
        return total.item()

    assert together(lambda: rank(0), lambda: rank(1)) == [3.0, 3.0]


def test_a_process_group_of_the_whole_program(store):
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        total = torch.ones(1)
        dist.all_reduce(total)
        dist.barrier()
        assert total.item() == 1.0
    finally:
        dist.destroy_process_group()


def test_a_state_changes_only_under_a_compare(server):
    backend = ours.EtcdRendezvousBackend(server.endpoint, "run", "/rendezvous")
    assert backend.name == "etcd-v2" and backend.get_state() is None
    state, first, written = backend.set_state(b"one")
    assert (state, written) == (b"one", True)
    assert backend.set_state(b"two") == (b"one", first, False)
    assert backend.set_state(b"two", "nonsense") == (b"one", first, False)
    state, second, written = backend.set_state(b"two", first)
    assert (state, written) == (b"two", True) and second > first
    assert backend.get_state() == (b"two", second)
    assert backend.set_state(b"three", first) == (b"two", second, False)
    with pytest.raises(ValueError, match="run id"):
        ours.EtcdRendezvousBackend(server.endpoint, "")


def test_pytorchs_own_handler_on_our_backend(server, monkeypatch):
    # Its rank 0 would serve a store of its own, and on every address of the machine.
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    parameters = RendezvousParameters("etcd-v2", server.endpoint, "run", 2, 2, "127.0.0.1")
    handlers = [ours.create_handler(parameters) for _ in range(2)]
    assert [handler.get_backend() for handler in handlers] == ["etcd-v2", "etcd-v2"]

    def meet(handler):
        info = handler.next_rendezvous()
        return info.rank, info.world_size, info.store.add("here", 1)

    met = together(*(lambda handler=handler: meet(handler) for handler in handlers))
    assert [sorted(column) for column in zip(*met)] == [[0, 1], [2, 2], [1, 2]]
    assert [handler.shutdown() for handler in handlers] == [True, True]


def lapse(endpoint):
    """What happens by itself after two hours without a write: the leases expire."""
    command = [TARGET / "tools" / "etcd-3.5" / "etcdctl", "--endpoints", endpoint, "lease"]
    environment = {**os.environ, "ETCDCTL_API": "3"}
    found = subprocess.run([*command, "list"], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    leases = [word for word in found.stdout.split() if re.fullmatch("[0-9a-f]{16}", word)]
    assert leases, found.stdout
    for lease in leases:
        subprocess.run([*command, "revoke", lease], env=environment, stdout=subprocess.DEVNULL, check=True)


def test_a_run_that_expired_begins_again(server, monkeypatch):
    """Its rounds begin with 0 again, and nobody meets the address that was true in the first life."""
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    master = "torch.rendezvous.run.0/MASTER_ADDR"
    for life in ("127.0.0.1", "127.0.0.2"):
        parameters = RendezvousParameters("etcd-v2", server.endpoint, "run", 1, 1, life)
        backend, store = ours.create_backend(parameters)
        assert backend.get_state() is None and store.list_keys() == []
        handler = create_dynamic_handler(store, backend, parameters)
        assert handler.next_rendezvous().bootstrap_store_info.master_addr == life
        assert store.get(master) == life.encode()
        assert handler.shutdown()
        lapse(server.endpoint)
        assert backend.get_state() is None


def test_a_store_may_be_used_before_there_is_a_state(server):
    backend, store = ours.create_backend(RendezvousParameters("etcd-v2", server.endpoint, "run", 1, 1))
    assert isinstance(store, ours.EtcdStore) and backend.name == "etcd-v2"
    store.set("key", "value")
    backend.set_state(b"state")
    assert store.get("key") == b"value"
    lapse(server.endpoint)
    assert backend.get_state() is None and not store.check(["key"])


def test_wrong_options_are_refused():
    for options in ({"read_timeout": 0}, {"read_timeout": "soon"}, {"protocol": "gopher"}, {"ssl_cert": "/x"}):
        with pytest.raises(ValueError, match=next(iter(options))):
            ours.create_backend(RendezvousParameters("etcd-v2", "127.0.0.1:1", "run", 1, 1, **options))


def test_our_handler_in_place_of_the_legacy_one(server):
    parameters = RendezvousParameters("etcd", server.endpoint, "run", 1, 1, timeout=60, last_call_timeout=1)
    handler = ours.create_rdzv_handler(parameters)
    assert handler.get_backend() == "etcd" and handler.get_run_id() == "run" and handler.use_agent_store
    info = handler.next_rendezvous()
    info.store.set("key", "value")
    # The workers find the same store at the address they are told, and their own keys in it.
    master = info.bootstrap_store_info
    workers = dist.TCPStore(master.master_addr, master.master_port, is_master=False)
    assert not workers.check(["key"])
    assert handler.num_nodes_waiting() == 0 and not handler.is_closed()
    assert handler.shutdown()


def test_errors_of_the_rendezvous_are_pytorchs_and_ours():
    parameters = RendezvousParameters("etcd-v3", "127.0.0.1:1", "run", 1, 1, timeout="0.2")
    with pytest.raises(RendezvousConnectionError) as raised:
        ours.create_rdzv_handler(parameters)
    assert isinstance(raised.value, rallypoint.RendezvousConnectionError)


def test_errors_can_be_pickled(store):
    """As they must be to come out of another process."""
    store.set_timeout(timedelta(milliseconds=10))
    with pytest.raises(rallypoint.StoreTimeoutError) as raised:
        store.get("key")
    raised.value.hint = "noted"
    for again in (pickle.loads(pickle.dumps(raised.value)), copy.copy(raised.value)):
        assert type(again) is type(raised.value) and isinstance(again, dist.DistStoreError)
        assert (str(again), again.hint) == (str(raised.value), "noted")


def test_arguments_are_those_of_pytorchs():
    """Moving over is one line: whatever can be passed to theirs can be passed to ours."""
    pairs = [
        (stock_store.EtcdStore.__init__, ours.EtcdStore.__init__),
        (stock_server.EtcdServer.__init__, ours.EtcdServer),
        (stock_server.EtcdServer.start, ours.EtcdServer.start),
        (stock_backend.EtcdRendezvousBackend.__init__, ours.EtcdRendezvousBackend.__init__),
        (stock_backend.create_backend, ours.create_backend),
    ]
    for theirs, mine in pairs:
        names = [[name for name in inspect.signature(one).parameters if name != "self"] for one in (theirs, mine)]
        assert names[0] == names[1], mine
    for name in ("start", "stop", "get_port", "get_host", "get_endpoint", "get_client"):
        assert callable(getattr(ours.EtcdServer, name))


def test_a_client_of_python_etcd_names_the_server(server):
    import etcd

    host, _, port = server.endpoint.partition(":")
    store = ours.EtcdStore(etcd.Client(host=host, port=int(port)), "/store")
    assert store.add("visits", 1) == 1
    with pytest.raises(ValueError, match="rallypoint.Client with protocol"):
        ours.EtcdStore(etcd.Client(host=host, port=int(port), protocol="https"), "/store")


def test_a_store_in_several_threads(store):
    waiter = threading.Thread(target=dist.PrefixStore("part", store).get, args=("late",))
    waiter.start()
    store.set("part/late", "")
    waiter.join()


def test_the_example():
    names = {"rallypoint": rallypoint, "torch": torch, "EtcdStore": ours.EtcdStore}
    example = doctest.DocTestParser().get_doctest(ours.EtcdStore.__doc__, names, "EtcdStore", None, None)
    said = []
    runner = doctest.DocTestRunner()
    runner.run(example, out=said.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(said)


def test_the_page_on_moving_over():
    """Its programs run, and what it says of arguments is so."""
    page = (ROOT / "docs" / "guides" / "migrating-from-torch-etcd.md").read_text()
    programs = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert programs
    for program in programs:
        names = {}
        exec(compile(program, "migrating-from-torch-etcd.md", "exec"), names)
        # What is commented out is what it was before, and gives the same names.
        before = re.findall(r"^# from \S+ import (.*)$", program, re.MULTILINE)
        assert before and {name for line in before for name in line.split(", ")} <= set(names)
    signatures = re.findall(r"^\| `(\w+)(\(.*?\))` \|", page, re.MULTILINE)
    assert {name for name, _ in signatures} >= {"EtcdStore", "EtcdServer", "EtcdRendezvousBackend", "create_backend"}
    for name, arguments in signatures:
        parameters = inspect.signature(getattr(ours, name)).parameters.values()
        bare = [one.replace(annotation=one.empty) for one in parameters]
        assert str(inspect.Signature(bare)) == arguments, name
