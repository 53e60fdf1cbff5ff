"""A rendezvous handler as PyTorch's elastic agent wants it."""

from __future__ import annotations

import atexit
import logging
import os
import sys

from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousParameters
from torch.distributed.elastic.rendezvous.api import RendezvousStoreInfo

import rallypoint
from rallypoint._fence import Fence
from rallypoint._gathering import gather
from rallypoint._guard import WorkerGuard
from rallypoint._torch_errors import as_torch
from rallypoint.errors import ParameterError, RallypointError, RendezvousGracefulExitError

logger = logging.getLogger("rallypoint.torchrun")

# What torchrun calls a run whose name it was not told.
_NO_ID = "none"

# Where the secret stands that the nodes share.
_SECRET = "RALLYPOINT_SECRET"

# Where torchrun's main function is.
_TORCHRUN = ("torch.distributed.run", "torch.distributed.launch")

# What somebody presses or sends who does not want to wait.
_INTERRUPTS = (KeyboardInterrupt, SignalException)


class TorchrunHandler(RendezvousHandler):
    """A node's way into the group of its run, for torchrun's agent."""

    def __init__(self, params: RendezvousParameters) -> None:
        self._name = params.backend
        self._dismissed = False
        self._is_told = False
        self._pid = os.getpid()
        # Whoever makes a handler while it handles an exception is not to be told of that one later.
        self._known_error = sys.exc_info()[1]
        # Any other name is that of an etcd which is there already.
        backend = params.backend if params.backend in ("rallypoint", "etcd-v3") else "etcd"
        if backend != "rallypoint" and not params.endpoint:
            raise ParameterError(f"endpoint is missing: {params.backend} needs an etcd; give its host:port")
        _show_log()
        if backend != "rallypoint" and params.run_id == _NO_ID:
            logger.warning("no --rdzv-id was given: jobs on this etcd without one are taken for one; give each its own")
        self._guard = WorkerGuard(params.endpoint, params.local_addr)
        try:
            with as_torch():
                self._rendezvous = rallypoint.Rendezvous(
                    params.endpoint,
                    params.run_id,
                    params.min_nodes,
                    params.max_nodes,
                    backend=backend,
                    local_addr=params.local_addr,
                    guard=self._guard.guard,
                    **params.config,
                )
        except BaseException:
            self._guard.close()
            raise
        self._fence = Fence(self._rendezvous)
        # The workers inherit the environment, and have no business with it. It comes back at the end.
        self._secret = os.environ.pop(_SECRET, None)
        # After a signal PyTorch shuts nothing down. The others are told nevertheless, rather than left to notice.
        atexit.register(self._leave)

    def get_backend(self) -> str:
        return self._name

    def get_run_id(self) -> str:
        return self._rendezvous.run_id

    @property
    def use_agent_store(self) -> bool:
        return self._rendezvous.use_agent_store

    def next_rendezvous(self) -> RendezvousInfo:
        with as_torch():
            store = None
            while store is None:
                group = self._meet()
                store = gather(self._rendezvous, group)
        self._fence.watch()
        self._is_told = False
        logger.info("round %d: this node has rank %d of %d", group.round, group.rank, group.world_size)
        master = RendezvousStoreInfo(group.master_addr, group.master_port)
        return RendezvousInfo(store, group.rank, group.world_size, master)

    def _meet(self) -> rallypoint.RendezvousInfo:
        try:
            return self._rendezvous.next_rendezvous()
        except RendezvousGracefulExitError as error:
            logger.info("%s", error)
            self._dismissed = True
            raise

    def num_nodes_waiting(self) -> int:
        with as_torch():
            waiting = self._rendezvous.num_nodes_waiting()
            if waiting > 0 and not self._is_told:
                # The agent says only that there are some.
                logger.info("the workers are to stop: %s", self._rendezvous.disturbance)
                self._is_told = True
            return waiting

    def is_closed(self) -> bool:
        with as_torch():
            return self._rendezvous.is_closed()

    def set_closed(self) -> None:
        with as_torch():
            self._rendezvous.set_closed()

    def shutdown(self) -> bool:
        """Ends it, in a way that depends on why.

        PyTorch calls this when an agent ends, whatever the reason, and does not say which. But it calls from a
        ``finally``, so the exception that the agent ended with, if any, is the one being handled. Workers that
        succeeded, or that failed for good, are the end of the job: the run is closed. Anything else concerns
        this node alone, and the others go on.
        """
        if _agent_calls():
            # PyTorch 2.6 and 2.7 do so as soon as workers have ended, and then again from where they all do.
            return True
        atexit.unregister(self._leave)
        error = sys.exc_info()[1]
        if error is self._known_error:
            error = None
        self._known_error = None
        reason = None
        if isinstance(error, ChildFailedError):
            reason = f"the workers of {self._rendezvous.node_id} failed, and no restart was left"
        done = self._end(error is None, reason)
        if self._dismissed and isinstance(error, AttributeError) and _is_torchrun():
            # PyTorch's launcher trips over a spare that was not needed (pytorch#194710): it asks the result
            # of an agent that has none. That is not a failure of this node.
            raise SystemExit(0)
        return done

    def _leave(self) -> None:
        # A fork of the agent is not the agent.
        if self._pid == os.getpid():
            self._end(success=False)

    def _end(self, success: bool, reason: str | None = None) -> bool:
        if self._secret is not None:
            os.environ.setdefault(_SECRET, self._secret)
        if success:
            self._guard.close()
        try:
            return self._rendezvous.shutdown(success, reason)
        except RallypointError as error:
            logger.warning("%s", error)
        except _INTERRUPTS:
            logger.warning("not staying any longer; if others use the server of this process, they lose it")
        return False


def _agent_calls() -> bool:
    """Whether it is the agent that called the caller, and not its launcher."""
    return sys._getframe(2).f_globals.get("__name__") == LocalElasticAgent.__module__


def _is_torchrun() -> bool:
    """Whether torchrun is the program that ends; and not one that has called its launcher."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        # With ``python -m`` the module is called otherwise, but its specification is not.
        module = getattr(frame.f_globals.get("__spec__"), "name", None)
        if frame.f_code.co_name == "main" and module in _TORCHRUN:
            return True
    return False


def _show_log() -> None:
    """torchrun shows its own log, and nobody else's. Who serves, and what is waited for, should be seen."""
    ours = logging.getLogger("rallypoint")
    if ours.hasHandlers() or ours.level != logging.NOTSET:
        return
    shown = logging.StreamHandler()
    shown.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    ours.addHandler(shown)
    # Or else it would be shown twice by a program that sets up its own log later.
    ours.propagate = False
    asked = os.environ.get("LOGLEVEL", "").upper()
    known = isinstance(logging.getLevelName(asked), int)
    ours.setLevel(asked if known else logging.WARNING)
    if not known:
        for name in ("hosting", "torchrun", "waiting", "rendezvous.etcd.handler"):
            logging.getLogger(f"rallypoint.{name}").setLevel(logging.INFO)
