"""A rendezvous handler as PyTorch's elastic agent wants it."""

import atexit
import contextlib
import logging
import os
import sys
import time
from datetime import timedelta

from torch.distributed import DistNetworkError, PrefixStore, TCPStore
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo
from torch.distributed.elastic.rendezvous.api import RendezvousStoreInfo

from rallypoint import Rendezvous
from rallypoint._torch_errors import as_torch
from rallypoint.errors import ParameterError, RendezvousGracefulExitError

logger = logging.getLogger("rallypoint.torchrun")

# How long the agents of a group wait for each other's words, as in PyTorch's own stores.
_STORE_TIMEOUT = timedelta(seconds=300)

# A store that is there answers at once. After so long it is asked whether its group is still one.
_CONNECT_TIMEOUT = timedelta(seconds=5)

# What somebody presses or sends who does not want to wait.
_INTERRUPTS = (KeyboardInterrupt, SignalException)


class TorchrunHandler(RendezvousHandler):
    """A node's way into the group of its run, for torchrun's agent."""

    def __init__(self, params):
        self._name = params.backend
        self._run_id = params.run_id
        self._dismissed = False
        self._pid = os.getpid()
        # Whoever makes a handler while it handles an exception is not to be told of that one later.
        self._known_error = sys.exc_info()[1]
        # Any other name is that of an etcd which is there already.
        backend = "rallypoint" if params.backend == "rallypoint" else "etcd"
        if backend == "etcd" and not params.endpoint:
            raise ParameterError(f"endpoint is missing: {params.backend} needs an etcd; give its host:port")
        _show_log()
        with as_torch():
            self._rendezvous = Rendezvous(
                params.endpoint,
                params.run_id,
                params.min_nodes,
                params.max_nodes,
                backend=backend,
                local_addr=params.local_addr,
                **params.config,
            )
        # After a signal PyTorch shuts nothing down. The others are told nevertheless, rather than left to notice.
        atexit.register(self._leave)

    def get_backend(self):
        return self._name

    def get_run_id(self):
        return self._run_id

    @property
    def use_agent_store(self):
        return self._rendezvous.use_agent_store

    def next_rendezvous(self):
        with as_torch():
            while True:
                group = self._meet()
                store = self._connect(group)
                if store is not None:
                    break
                logger.warning("the group of round %d was lost before it began; meeting again", group.round)
        master = RendezvousStoreInfo(group.master_addr, group.master_port)
        return RendezvousInfo(store, group.rank, group.world_size, master)

    def _meet(self):
        try:
            return self._rendezvous.next_rendezvous()
        except RendezvousGracefulExitError as error:
            logger.info("%s", error)
            self._dismissed = True
            raise

    def _connect(self, group):
        """The store of this group, which rank 0 serves; nothing if the group is lost."""
        if not self.use_agent_store:
            # A worker is to serve there, and is not started yet.
            return group.store
        deadline = time.monotonic() + _STORE_TIMEOUT.total_seconds()
        while True:
            try:
                store = TCPStore(group.master_addr, group.master_port, is_master=False, timeout=_CONNECT_TIMEOUT)
            except DistNetworkError:
                if self._rendezvous.num_nodes_waiting() > 0:
                    return None
                if time.monotonic() >= deadline:
                    raise
            else:
                store.set_timeout(_STORE_TIMEOUT)
                # The workers have the same store, and keys of their own.
                return PrefixStore(f"torch.rendezvous.{self._run_id}.{group.round}", store)

    def num_nodes_waiting(self):
        with as_torch():
            return self._rendezvous.num_nodes_waiting()

    def is_closed(self):
        with as_torch():
            return self._rendezvous.is_closed()

    def set_closed(self):
        with as_torch():
            self._rendezvous.set_closed()

    def shutdown(self):
        """Ends it, in a way that depends on why.

        PyTorch calls this when an agent ends, whatever the reason, and does not say which. But it calls from a
        ``finally``, so the exception that the agent ended with, if any, is the one being handled. Workers that
        succeeded, or that failed for good, are the end of the job: the run is closed. Anything else concerns
        this node alone, and the others go on.
        """
        atexit.unregister(self._leave)
        error = sys.exc_info()[1]
        if error is self._known_error:
            error = None
        try:
            if isinstance(error, ChildFailedError):
                self._rendezvous.set_closed(f"the workers of {self._rendezvous.node_id} failed for good")
            done = self._rendezvous.shutdown(success=error is None)
        except _INTERRUPTS:
            logger.warning("not staying any longer; if others use the server of this process, they lose it")
            done = False
        if self._dismissed and isinstance(error, AttributeError):
            # PyTorch's launcher trips over a spare that was not needed (pytorch#194710): it asks the result
            # of an agent that has none. That is not a failure of this node.
            raise SystemExit(0)
        return done

    def _leave(self):
        # A fork of the agent is not the agent.
        if self._pid == os.getpid():
            with contextlib.suppress(*_INTERRUPTS):
                self._rendezvous.shutdown(success=False)


def _show_log():
    """torchrun shows its own log, and nobody else's. Who serves, and what is waited for, should be seen."""
    ours = logging.getLogger("rallypoint")
    if ours.hasHandlers() or ours.level != logging.NOTSET:
        return
    shown = logging.StreamHandler()
    shown.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    ours.addHandler(shown)
    asked = os.environ.get("LOGLEVEL", "").upper()
    known = isinstance(logging.getLevelName(asked), int)
    ours.setLevel(asked if known else logging.WARNING)
    if not known:
        for name in ("hosting", "waiting", "rendezvous.etcd.handler"):
            logging.getLogger(f"rallypoint.{name}").setLevel(logging.INFO)
