"""The agents of a group connect to its store, before any of them relies on another.

An agent of torchrun first waits for a key of every other agent, and would not learn that one of them is dead.
So they begin when all have come, or not at all: rank 0 says which, unless another was the first to call it off.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from datetime import timedelta

from torch.distributed import DistNetworkError, DistStoreError, PrefixStore, Store, TCPStore

import rallypoint
from rallypoint import _native
from rallypoint._torch_store import TorchStore
from rallypoint.errors import RendezvousTimeoutError

logger = logging.getLogger("rallypoint.torchrun")
waiting = logging.getLogger("rallypoint.waiting")

# How long the agents of a group wait for each other's words, as in PyTorch's own stores.
_STORE_TIMEOUT = timedelta(seconds=300)

# How long a store may take to answer that is there.
_CONNECT_TIMEOUT = timedelta(seconds=5)

# After how long of waiting it is asked whether the group is still one; and how soon a store that failed is asked again.
_LOOK_AFTER = timedelta(seconds=1)
_PAUSE = 0.1

# When a wait is said to be one, and how often after that.
_SAID_AFTER = 3
_SAID_AGAIN = 30

# Whether they begin: one of these words, once that is decided.
_DECISION = _native.DECISION_KEY
_BEGIN = b"begin"
_CALLED_OFF = b"called off"

_FAILURES = (DistNetworkError, DistStoreError, OSError)


def gather(rendezvous: rallypoint.Rendezvous, group: rallypoint.RendezvousInfo) -> Store | None:
    """The store of this group, when all of its agents have come to it; nothing if it was called off."""
    store = None
    begun = time.monotonic()
    say_at = begun + _SAID_AFTER
    where = f"rank 0's store at {group.master_addr}:{group.master_port}"
    while rendezvous.num_nodes_waiting() == 0:
        try:
            if store is None:
                store = _connect(rendezvous, group)
            if _decision(store, group) == _BEGIN:
                return store
            break
        except _FAILURES as error:
            if isinstance(error, DistNetworkError):
                store = None
            now = time.monotonic()
            if now - begun >= _STORE_TIMEOUT.total_seconds():
                raise RendezvousTimeoutError(
                    f"round {group.round}: not all of {group.world_size} nodes came to {where} within "
                    f"{_STORE_TIMEOUT.seconds} s; see that they reach it ({error})"
                ) from error
            if now >= say_at:
                waiting.info("waiting: the %d nodes of round %d to come to %s", group.world_size, group.round, where)
                say_at = now + _SAID_AGAIN
            time.sleep(_PAUSE)
    if store is not None and not _call_off(store):
        return store
    logger.warning("the group of round %d has changed before it began; meeting again", group.round)
    return None


def _connect(rendezvous: rallypoint.Rendezvous, group: rallypoint.RendezvousInfo) -> Store:
    if not rendezvous.use_agent_store:
        # A worker is to serve there, and is not started yet.
        return TorchStore(group.store, _STORE_TIMEOUT)
    # PyTorch's client would retry a port without a listener again and again, with a stack trace each time.
    socket.create_connection((group.master_addr, group.master_port), _LOOK_AFTER.total_seconds()).close()
    store = TCPStore(group.master_addr, group.master_port, is_master=False, timeout=_CONNECT_TIMEOUT)
    store.set_timeout(_STORE_TIMEOUT)
    # The workers have the same store, and keys of their own.
    return PrefixStore(_native.agent_store_prefix(rendezvous.run_id, group.round), store)


def _decision(store: Store, group: rallypoint.RendezvousInfo) -> bytes:
    """Says that this agent is there, and waits a moment for the decision. It may be asked again and again."""
    store.set(_native.arrived_key(group.rank), "")
    if group.rank > 0:
        store.wait([_DECISION], _LOOK_AFTER)
        return store.get(_DECISION)
    store.wait([_native.arrived_key(rank) for rank in range(group.world_size)], _LOOK_AFTER)
    return store.compare_set(_DECISION, b"", _BEGIN)


def _call_off(store: Store) -> bool:
    """Sees to it that this group does not begin. False if it has begun."""
    with contextlib.suppress(*_FAILURES):
        return store.compare_set(_DECISION, b"", _CALLED_OFF) != _BEGIN
    return True
