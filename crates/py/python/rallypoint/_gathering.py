"""The agents of a group come to its store, before any of them relies on the others.

An agent of torchrun begins by waiting for a word of each of the others, and would not learn that one of them is dead.
So it is let go only when all have come.
"""

from __future__ import annotations

import contextlib
import logging
import time
from datetime import timedelta

from torch.distributed import DistNetworkError, DistStoreError, PrefixStore, Store, TCPStore

import rallypoint
from rallypoint._torch_store import TorchStore
from rallypoint.errors import RendezvousTimeoutError

logger = logging.getLogger("rallypoint.torchrun")

# How long the agents of a group wait for each other's words, as in PyTorch's own stores.
_STORE_TIMEOUT = timedelta(seconds=300)

# A store that is there answers at once.
_CONNECT_TIMEOUT = timedelta(seconds=5)

# After how long of waiting it is asked whether the group is still one; and how soon a store that failed is asked again.
_LOOK_AFTER = timedelta(seconds=1)
_PAUSE = 0.1

# How many agents have come to the store, and that all have.
_COUNT = "rallypoint/arrived"
_COMPLETE = "rallypoint/complete"

# More agents than will ever come.
_NEVER = 1 << 32


def gather(rendezvous: rallypoint.Rendezvous, group: rallypoint.RendezvousInfo) -> Store | None:
    """The store of this group, when all of its agents have come to it; nothing if the group has changed before."""
    store = None
    deadline = time.monotonic() + _STORE_TIMEOUT.total_seconds()
    while rendezvous.num_nodes_waiting() == 0:
        try:
            if store is None:
                store = _connect(rendezvous, group)
                if store.add(_COUNT, 1) == group.world_size:
                    store.set(_COMPLETE, "")
            store.wait([_COMPLETE], _LOOK_AFTER)
            return store
        except (DistNetworkError, DistStoreError) as error:
            if isinstance(error, DistNetworkError):
                store = None
            if time.monotonic() >= deadline:
                where = f"rank 0's store at {group.master_addr}:{group.master_port}"
                raise RendezvousTimeoutError(
                    f"round {group.round}: not all of {group.world_size} nodes came to {where} within "
                    f"{_STORE_TIMEOUT.seconds} s; see that they reach it ({error})"
                ) from error
            time.sleep(_PAUSE)
    if store is not None and not _withdraw(store, group.world_size):
        return store
    logger.warning("the group of round %d has changed before it began; meeting again", group.round)
    return None


def _connect(rendezvous: rallypoint.Rendezvous, group: rallypoint.RendezvousInfo) -> Store:
    if not rendezvous.use_agent_store:
        # A worker is to serve there, and is not started yet.
        return TorchStore(group.store, _STORE_TIMEOUT)
    store = TCPStore(group.master_addr, group.master_port, is_master=False, timeout=_CONNECT_TIMEOUT)
    store.set_timeout(_STORE_TIMEOUT)
    # The workers have the same store, and keys of their own.
    return PrefixStore(f"torch.rendezvous.{rendezvous.run_id}.{group.round}", store)


def _withdraw(store: Store, world_size: int) -> bool:
    """Sees to it that this group does not begin without this agent. False if it has begun."""
    with contextlib.suppress(DistNetworkError, DistStoreError):
        return store.add(_COUNT, -_NEVER) + _NEVER < world_size
    return True
