"""Stores and rendezvous for PyTorch on etcd's v3 API, in place of PyTorch's own, which speak v2.

The names and arguments are those of ``torch.distributed.elastic.rendezvous``, so that moving over is one line::

    from rallypoint.torch import EtcdRendezvousBackend, EtcdServer, EtcdStore, create_backend

Where those take an ``etcd.Client``, these take a ``rallypoint.Client``, the text ``host:port``, or still an
``etcd.Client``, of which only the address is used.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from torch.distributed import Store
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as _dynamic

import rallypoint
from rallypoint import EtcdServer
from rallypoint._torch_errors import as_torch

__all__ = [
    "EtcdRendezvousBackend",
    "EtcdServer",
    "EtcdStore",
    "create_backend",
    "create_handler",
    "create_rdzv_handler",
]

# C++ that holds a store does not keep its Python half alive, and would then find that nothing is implemented.
# So whatever is made here stays: it is small, and there are few of them.
_kept: list[Store] = []


class EtcdStore(Store):
    """A ``torch.distributed.Store`` on an etcd, or on a ``rallypoint.Server``.

    Args:
        etcd_client: where the etcd is.
        etcd_store_prefix: where the keys of this store lie.
        timeout: how long calls wait, 300 s unless given.

    >>> server = rallypoint.Server()
    >>> store = EtcdStore(server.endpoint, "/jobs/7")
    >>> torch.distributed.PrefixStore("part", store).set("greeting", "hello")
    >>> store.get("part/greeting")
    b'hello'
    >>> server.stop()
    """

    def __init__(self, etcd_client: Any, etcd_store_prefix: str, timeout: timedelta | None = None) -> None:
        super().__init__()
        self.client = etcd_client
        self.prefix = etcd_store_prefix if etcd_store_prefix.endswith("/") else etcd_store_prefix + "/"
        if timeout is not None:
            self.set_timeout(timeout)
        with as_torch():
            self._store = rallypoint.EtcdStore(_client(etcd_client), self.prefix)
        _kept.append(self)

    def _patient(self) -> rallypoint.Store:
        """The time-out is a field of the C++ half, which may change it without telling."""
        self._store.set_timeout(self.timeout)
        return self._store

    @as_torch()
    def set(self, key, value):
        self._store.set(key, value)

    @as_torch()
    def get(self, key):
        return self._patient().get(key)

    @as_torch()
    def add(self, key, num):
        return self._store.add(key, num)

    @as_torch()
    def compare_set(self, key, expected, desired):
        return self._store.compare_set(key, expected, desired)

    @as_torch()
    def append(self, key, value):
        self._store.append(key, value)

    @as_torch()
    def check(self, keys):
        return self._store.check(keys)

    @as_torch()
    def wait(self, keys, override_timeout=None):
        self._store.wait(keys, self.timeout if override_timeout is None else override_timeout)

    @as_torch()
    def multi_get(self, keys):
        return self._patient().multi_get(keys)

    @as_torch()
    def multi_set(self, keys, values):
        self._store.multi_set(keys, values)

    @as_torch()
    def delete_key(self, key):
        return self._store.delete_key(key)

    @as_torch()
    def num_keys(self):
        return self._store.num_keys()

    @as_torch()
    def list_keys(self):
        return self._store.list_keys()

    @as_torch()
    def queue_push(self, key, value):
        self._store.queue_push(key, value)

    @as_torch()
    def queue_pop(self, key, block=True):
        return self._patient().queue_pop(key, block)

    @as_torch()
    def queue_len(self, key):
        return self._store.queue_len(key)

    @as_torch()
    def barrier(self, key, world_size, timeout=None):
        self._store.barrier(key, world_size, self.timeout if timeout is None else timeout)

    def has_extended_api(self):
        return True

    def clone(self):
        return EtcdStore(self.client, self.prefix, self.timeout)

    # C++ asks for these two by other names than Python does.
    deleteKey = delete_key
    getNumKeys = num_keys


class EtcdRendezvousBackend(_dynamic.RendezvousBackend):
    """The state of a rendezvous in an etcd, for PyTorch's ``DynamicRendezvousHandler``.

    Args:
        client: where the etcd is.
        run_id: the name of the run.
        key_prefix: where the state lies.
        ttl: how many seconds the state outlives its last change; two hours unless given.
    """

    def __init__(self, client: Any, run_id: str, key_prefix: str | None = None, ttl: int | None = None) -> None:
        if not run_id:
            raise ValueError("The run id must be a non-empty string.")
        self._name = "etcd-v2"
        ttl = ttl if ttl and ttl > 0 else None
        with as_torch():
            self._backend = rallypoint._native.RendezvousBackend(_client(client), run_id, key_prefix, ttl)

    @property
    def name(self):
        """``etcd-v2``, whose part it takes; or what was asked for, if it was made by ``create_backend``."""
        return self._name

    @as_torch()
    def get_state(self):
        return self._backend.get_state()

    @as_torch()
    def set_state(self, state, token=None):
        return self._backend.set_state(state, token)


def create_backend(params: RendezvousParameters) -> tuple[EtcdRendezvousBackend, EtcdStore]:
    """A backend and a store, as these parameters say. The options are those of PyTorch's ``etcd-v2``."""
    names = ("protocol", "ca_cert", "cacert", "ssl_cert", "cert", "ssl_cert_key", "key", "user", "password")
    options = {name: params.get(name) for name in (*names, "read_timeout")}
    options["read_timeout"] = options["read_timeout"] or 60
    with as_torch():
        client = rallypoint.Client(params.endpoint, **options)
    backend = EtcdRendezvousBackend(client, params.run_id, key_prefix="/torch/elastic/rendezvous")
    backend._name = params.backend
    # One for each run: keys that another left behind must not be met again.
    store = EtcdStore(client, f"/torch/elastic/store/{params.run_id}")
    return backend, store


def create_handler(params: RendezvousParameters) -> RendezvousHandler:
    """PyTorch's ``DynamicRendezvousHandler`` on an etcd: its ``etcd-v2``, with etcd's v3 API."""
    backend, store = create_backend(params)
    return _dynamic.create_handler(store, backend, params)


def create_rdzv_handler(params: RendezvousParameters) -> RendezvousHandler:
    """Our own handler on an etcd, in place of PyTorch's ``etcd``. The same as ``--rdzv-backend=etcd-v3``."""
    from rallypoint.torchrun import create_handler

    return create_handler(params)


def _client(given: Any) -> rallypoint.Client:
    if isinstance(given, rallypoint.Client):
        return given
    if isinstance(given, str):
        return rallypoint.Client(given)
    # python-etcd's.
    scheme, host, port = getattr(given, "protocol", "http"), given.host, given.port
    return rallypoint.Client(f"{scheme}://{host}:{port}")
