"""A rendezvous handler as PyTorch's elastic agent wants it."""

from __future__ import annotations

import atexit
import logging
import os
import socket
import sys
from types import FrameType
from typing import Any

import torch
from torch.distributed.elastic.events import NodeState, construct_and_record_rdzv_event
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousParameters
from torch.distributed.elastic.rendezvous.api import RendezvousStoreInfo

import rallypoint
from rallypoint import _log, _native
from rallypoint._agent import Course, StartedWorkers, watch_agents
from rallypoint._descriptors import Room
from rallypoint._fence import Fence
from rallypoint._gathering import gather
from rallypoint._guard import WorkerGuard
from rallypoint._torch_errors import as_torch
from rallypoint.errors import ParameterError, RallypointError, RendezvousGracefulExitError, RendezvousStateError

logger = logging.getLogger("rallypoint.torchrun")

# What torchrun calls a run whose name it was not told.
_NO_ID = "none"

# Where the secret stands that the nodes share, and the password of a user of etcd.
_SECRETS = ("RALLYPOINT_SECRET", "RALLYPOINT_PASSWORD")

# The signals of a user or a scheduler that does not want to wait.
_INTERRUPTS = (KeyboardInterrupt, SignalException)


class TorchrunHandler(RendezvousHandler):
    """A node's way into the group of its run, for torchrun's agent."""

    def __init__(self, params: RendezvousParameters) -> None:
        self._name = params.backend
        self._run_id = params.run_id
        self._host = params.local_addr or socket.gethostname()
        self.course = Course()
        self._is_told = False
        self._pid = os.getpid()
        # An exception that is being handled when the handler is made is not the reason of a later shutdown.
        self._known_error = sys.exc_info()[1]
        endpoint, config = params.endpoint, dict(params.config)
        # Any other name is that of an etcd which is there already.
        backend = params.backend if params.backend in _native.backends() else _native.ETCD_BACKEND
        is_etcd = backend != _native.DEFAULT_BACKEND
        if is_etcd and not endpoint:
            raise ParameterError(f"endpoint is missing: {params.backend} needs an etcd; give its host:port")
        _show_log()
        if is_etcd and params.run_id == _NO_ID:
            logger.warning("no --rdzv-id was given: jobs on this etcd without one are taken for one; give each its own")
        if params.run_id == _NO_ID:
            # Without a name, a run that is over is that of another job.
            config.setdefault("reopen", True)
        _log.start()
        if params.max_nodes > 1:
            endpoint = _complete(config, endpoint)
        self._room = Room(params.max_nodes)
        self._guard = WorkerGuard(endpoint, params.local_addr)
        try:
            with as_torch():
                self._rendezvous = rallypoint.Rendezvous(
                    endpoint,
                    params.run_id,
                    params.min_nodes,
                    params.max_nodes,
                    backend=backend,
                    local_addr=params.local_addr,
                    guard=self._guard.guard,
                    **config,
                )
        except BaseException:
            self._guard.close()
            raise
        self._fence = Fence(self._rendezvous, self.course.worker_ids)
        self.course.before_start, self.course.on_start = self._starting, self._started
        self.course.on_failure = self._rendezvous.workers_failed
        self.course.before_stop = self._rendezvous.workers_stopping
        watch_agents()
        # The workers inherit the environment, and have no business with them. They come back at the end.
        self._secrets = {name: os.environ.pop(name) for name in _SECRETS if name in os.environ}
        # After a signal PyTorch shuts nothing down. The other nodes are told at once, and need not wait for the lease.
        atexit.register(self._leave)
        self._node_id = self._rendezvous.node_id
        server = "this process runs the server" if self._rendezvous.serves else "a server answers"
        self._record("__init__", f"The node {self._node_id} is ready: {server}.", NodeState.INIT)

    def get_backend(self) -> str:
        return self._name

    def get_run_id(self) -> str:
        return self._rendezvous.run_id

    @property
    def use_agent_store(self) -> bool:
        return self._rendezvous.use_agent_store

    def next_rendezvous(self) -> RendezvousInfo:
        self._room.make(self.course.local_workers)
        node = self._node_id
        self._record("next_rendezvous", f"The node {node} joins the next round of the rendezvous {self._run_id!r}.")
        try:
            with as_torch():
                store = None
                while store is None:
                    group = self._meet()
                    store = gather(self._rendezvous, group)
        except RendezvousGracefulExitError as error:
            self._record("next_rendezvous", str(error), NodeState.SUCCEEDED)
            raise
        except Exception as error:
            self._record("next_rendezvous", f"{type(error).__name__}: {error}", NodeState.FAILED)
            raise
        self._record(
            "next_rendezvous",
            f"The node {node} has joined round {group.round} of the rendezvous {self._run_id!r} as rank {group.rank} "
            f"in a world of size {group.world_size}.",
            rank=group.rank,
            master_endpoint=f"{group.master_addr}:{group.master_port}",
        )
        self._fence.watch()
        self._is_told = False
        logger.info("round %d: this node has rank %d of %d", group.round, group.rank, group.world_size)
        master = RendezvousStoreInfo(group.master_addr, group.master_port)
        return RendezvousInfo(store, group.rank, group.world_size, master)

    def _starting(self) -> None:
        """Says in the environment of the workers how they show progress, if anything looks for it."""
        directory = self._rendezvous.workers_starting()
        if directory is not None:
            # Of an outer launcher, which has a sign of progress in torchrun itself.
            os.environ.pop("RALLYPOINT_PROGRESS_FILE", None)
            os.environ["RALLYPOINT_PROGRESS_DIR"] = directory

    def _started(self, workers: StartedWorkers) -> None:
        self._room.set_back(workers.ids)
        pids = [one for one in workers.ids if isinstance(one, int)]
        if len(pids) == len(workers.ids):
            self._rendezvous.workers_started(workers.base_rank, pids, workers.logs, sys.executable)

    def _meet(self) -> rallypoint.RendezvousInfo:
        try:
            return self._rendezvous.next_rendezvous()
        except RendezvousGracefulExitError as error:
            logger.info("%s", error)
            raise

    def num_nodes_waiting(self) -> int:
        with as_torch():
            waiting = self._rendezvous.num_nodes_waiting()
            if waiting > 0 and not self._is_told:
                # The agent says only that there are some.
                reason = self._rendezvous.stop_reason
                logger.info("the workers are to stop: %s", reason)
                self._record("num_nodes_waiting", f"The workers are to stop: {reason}.")
                self._is_told = True
            return waiting

    def is_closed(self) -> bool:
        with as_torch():
            return self._rendezvous.is_closed()

    def set_closed(self) -> None:
        try:
            with as_torch():
                self._rendezvous.set_closed()
        except Exception as error:
            self._record("set_closed", f"{type(error).__name__}: {error}", NodeState.FAILED)
            raise
        self._record("set_closed", f"The rendezvous {self._run_id!r} is closed.", NodeState.SUCCEEDED)

    def shutdown(self) -> bool:
        """Ends it, in a way that depends on why.

        PyTorch calls this when an agent ends, whatever the reason, and does not say which. Workers that succeeded, or
        that failed for good, are the end of the job: the run is closed. Anything else concerns this node alone, and
        the other nodes continue. A caller other than PyTorch that handles an exception makes the node leave too.
        """
        if self.course.is_running:
            # Agents of PyTorch 2.6 and 2.7 do so as soon as their workers have ended, before their launcher does.
            return True
        atexit.unregister(self._leave)
        if self.course.agent is None and _is_torch(sys._getframe(1)):
            self._end(success=False)
            raise RendezvousStateError(
                f"PyTorch {torch.__version__} ends a node without running its agent as this plugin knows it, so it "
                "is unknown whether the workers succeeded; the run is left to the other nodes; use another version of "
                "PyTorch or of rallypoint"
            )
        error = self.course.error if self.course.agent else self._error_of_caller()
        reason = None
        if self.course.has_failed:
            reason = f"the workers of {self._rendezvous.node_id} failed, and no restart was left"
        return self._end(error is None and reason is None, reason)

    def _error_of_caller(self) -> BaseException | None:
        """The exception that is being handled, unless it was when this handler was made."""
        error = sys.exc_info()[1]
        known, self._known_error = self._known_error, None
        return None if error is known else error

    def _leave(self) -> None:
        # A fork of the agent is not the agent.
        if self._pid == os.getpid():
            self._end(success=False)

    def _end(self, success: bool, reason: str | None = None) -> bool:
        for name, secret in self._secrets.items():
            os.environ.setdefault(name, secret)
        if success:
            self._guard.close()
        try:
            ended = self._rendezvous.shutdown(success, reason)
            self._record("shutdown", reason or "The node has ended its part.", _state(ended and reason is None))
            return ended
        except RallypointError as error:
            logger.warning("%s", error)
            self._record("shutdown", f"{type(error).__name__}: {error}", NodeState.FAILED)
        except _INTERRUPTS:
            logger.warning("not staying any longer; if others use the server of this process, they lose it")
        return False

    def _record(self, name: str, message: str, state: NodeState = NodeState.RUNNING, **known: Any) -> None:
        """Records an event as PyTorch's own handlers do. Without a handler of events nothing is made of it."""
        construct_and_record_rdzv_event(
            name=f"{type(self).__name__}.{name}",
            run_id=self._run_id,
            message=message,
            node_state=state,
            hostname=self._host,
            pid=self._pid,
            **known,
        )


def _state(success: bool) -> NodeState:
    return NodeState.SUCCEEDED if success else NodeState.FAILED


def _complete(config: dict[str, Any], endpoint: str) -> str:
    """Adds what the environment says of this node and torchrun does not: its rank; and where to meet, if no endpoint
    is given. Returns the endpoint."""
    if "node_rank" not in config and (rank := _native.node_rank()):
        config["node_rank"] = rank[0]
        logger.info("node rank %d from %s", *rank)
    if not endpoint and (master := _native.master()):
        endpoint, source = master
        logger.info("endpoint %s from %s", endpoint, source)
        if "node_rank" in config:
            # In the static form the node of rank 0 is the master, whatever the name means here.
            config.setdefault("is_host", str(config["node_rank"]).strip() == "0")
    return endpoint


def _is_torch(frame: FrameType) -> bool:
    """Whether this is code of PyTorch, and not of one who uses its parts."""
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "torch"


def _show_log() -> None:
    """torchrun shows its own log only. Which host serves, and what is waited for, should be seen too."""
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
        for name in ("embedded", "run", "torchrun", "waiting"):
            logging.getLogger(f"rallypoint.{name}").setLevel(logging.INFO)
