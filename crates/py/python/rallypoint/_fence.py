"""Ends the workers of a node that has lost its place, before another may have it.

torchrun would stop them too, as soon as it asks for waiting nodes, but with up to thirty seconds for those that
do not want to. They do not have them.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from rallypoint import Rendezvous

logger = logging.getLogger("rallypoint.torchrun")

# How often it is looked for workers that were still being started, as long as the node has no place.
_AGAIN = 1.0


class Fence:
    """Watches over the workers that this process starts, which has none yet, while it is in a group."""

    def __init__(self, rendezvous: Rendezvous, worker_ids: Callable[[], list[Any]]) -> None:
        self._rendezvous = rendezvous
        self._worker_ids = worker_ids
        # Another may have the place after an eighth. Half of that is for workers that stop when they are asked to.
        self._grace = rendezvous.lease_ttl.total_seconds() / 16
        self._others = workers()
        self._watching: threading.Thread | None = None

    def watch(self) -> None:
        """To be called when there is a group. One thread watches over all that follow, until ``shutdown``."""
        if self._watching is None:
            self._watching = threading.Thread(target=self._watch, name="rallypoint-fence", daemon=True)
            self._watching.start()

    def _watch(self) -> None:
        while (loss := self._rendezvous.fenced()) is not None:
            doomed = self._doomed()
            time.sleep(self._grace)
            killed = kill(doomed)
            if killed:
                logger.warning("killed %d processes of workers, which another node may replace now: %s", killed, loss)
            # In no other group yet, so whatever is started meanwhile is started for the one that is lost.
            pause = self._grace
            while self._rendezvous.is_fenced:
                kill(workers() - self._others)
                time.sleep(pause)
                pause = _AGAIN

    def _doomed(self) -> set[Process]:
        """The workers: those that look like it, and those that the agent knows."""
        told = self._worker_ids()
        found = workers() - self._others
        found |= {process for process in _processes() if process.pid in told}
        unknown = sum(not isinstance(one, int) for one in told)
        if unknown and len(found) < len(told):
            logger.error(
                "found %d of the %d workers of this node, which must end: the rest may go on beside those of another "
                "node; this plugin does not know how this PyTorch starts them",
                len(found),
                len(told),
            )
        return found


class Process(NamedTuple):
    """A process that lives. Its number may be another's one day, but not with the same beginning."""

    pid: int
    parent: int
    session: int
    begun: int


def workers() -> set[Process]:
    """What may be torchrun's workers: children with a session of their own, or that ``multiprocessing`` started."""
    here = os.getpid()
    started = {child.pid for child in multiprocessing.active_children()}
    return {
        process
        for process in _processes()
        if process.pid in started or (process.parent == here and process.session == process.pid)
    }


def kill(doomed: Collection[Process]) -> int:
    """Ends workers, and all that they started or that is in their sessions. Returns how many there were."""
    killed: set[int] = set()
    # Twice, for what is started while the first look is taken.
    for _ in range(2 if doomed else 0):
        found = _belonging_to(doomed)
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= found
    return len(killed)


def _belonging_to(doomed: Collection[Process]) -> set[int]:
    processes = _processes()
    # No number is given away while a session has it.
    sessions = {worker.pid for worker in doomed if worker.session == worker.pid}
    found = {process.pid for process in processes if process in doomed or process.session in sessions}
    while True:
        more = {process.pid for process in processes if process.parent in found} - found
        if not more:
            return found
        found |= more


def _processes() -> list[Process]:
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb", buffering=0) as file:
            # The name, in parentheses, may hold anything.
            fields = file.read(4096).rpartition(b")")[2].split()
            if len(fields) > 19 and fields[0] not in (b"Z", b"X"):
                found.append(Process(int(name), int(fields[1]), int(fields[3]), int(fields[19])))
    return found
