"""Stores and rendezvous for PyTorch on etcd's v3 API, in place of PyTorch's own, which speak v2.

The names and arguments are those of ``torch.distributed.elastic.rendezvous``, so that moving over is one line::

    from rallypoint.torch import EtcdRendezvousBackend, EtcdServer, EtcdStore, create_backend

Where those take an ``etcd.Client``, these take a ``rallypoint.Client``, the text ``host:port``, or still an
``etcd.Client``, of which only the address is used, so that it must not be one with TLS.
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
from rallypoint._torch_store import TorchStore

__all__ = [
    "EtcdRendezvousBackend",
    "EtcdServer",
    "EtcdStore",
    "create_backend",
    "create_handler",
    "create_rdzv_handler",
]


_CREDENTIALS = ("user", "password", "password_file")


class EtcdStore(TorchStore):
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
        self.client = etcd_client
        self.prefix = etcd_store_prefix if etcd_store_prefix.endswith("/") else etcd_store_prefix + "/"
        with as_torch():
            native = rallypoint.EtcdStore(_client(etcd_client), self.prefix)
        super().__init__(native, timeout)

    @classmethod
    def _of(cls, native: rallypoint.Store, client: Any, prefix: str) -> EtcdStore:
        """A store that is there already."""
        store = cls.__new__(cls)
        store.client, store.prefix = client, prefix
        TorchStore.__init__(store, native)
        return store


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
            self._client = _client(client)
            self._backend = rallypoint._native.RendezvousBackend(self._client, run_id, key_prefix, ttl)

    @property
    def name(self) -> str:
        """``etcd-v2``, whose part it takes; or what was asked for, if it was made by ``create_backend``."""
        return self._name

    @as_torch()
    def get_state(self) -> tuple[bytes, Any] | None:
        return self._backend.get_state()

    @as_torch()
    def set_state(self, state: bytes, token: Any | None = None) -> tuple[bytes, Any, bool] | None:
        return self._backend.set_state(state, token)

    @as_torch()
    def _store(self, prefix: str) -> EtcdStore:
        """A store whose keys end with the state. A run that has lapsed and begins again begins with round 0, and
        must not meet the addresses that were true in its first life."""
        return EtcdStore._of(self._backend.store(prefix), self._client, prefix)


def create_backend(params: RendezvousParameters) -> tuple[EtcdRendezvousBackend, Store]:
    """A backend and a store, as these parameters say. The options are those of PyTorch's ``etcd-v2``, and ``user``,
    ``password`` and ``password_file``. Waits for a server that is late, for as long as ``read_timeout``."""
    names = ("protocol", "ca_cert", "cacert", "ssl_cert", "cert", "ssl_cert_key", "key", *_CREDENTIALS)
    options = {name: params.get(name) for name in names}
    with as_torch():
        client = rallypoint.Client(params.endpoint, read_timeout=params.get("read_timeout", 60), **options)
    backend = EtcdRendezvousBackend(client, params.run_id, key_prefix=rallypoint._native.DYNAMIC_PREFIX)
    backend._name = params.backend
    return backend, backend._store(rallypoint._native.dynamic_run_store(params.run_id))


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
    if getattr(given, "protocol", "http") != "http":
        fix = "give a rallypoint.Client with protocol='https' and cacert instead"
        raise rallypoint.ParameterError(f"client: an etcd.Client does not tell its certificates; {fix}")
    return rallypoint.Client(f"{given.host}:{given.port}")
