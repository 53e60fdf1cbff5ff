"""Ends the workers of a node that has lost its place, before another may have it.

torchrun would stop them too, as soon as it asks for waiting nodes, but with up to thirty seconds for those that
do not want to. They do not have them.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import pathlib
import signal
import threading
import time

from rallypoint import Rendezvous

logger = logging.getLogger("rallypoint.torchrun")


class Fence:
    """Watches over the workers that this process starts while it is in a group."""

    def __init__(self, rendezvous: Rendezvous) -> None:
        self._rendezvous = rendezvous
        # Another may have the place after an eighth. Half of that is for workers that stop when they are asked to.
        self._grace = rendezvous.lease_ttl.total_seconds() / 16
        self._watching: threading.Thread | None = None

    def watch(self) -> None:
        """To be called whenever there is a group. Until ``shutdown`` of the rendezvous, one thread watches."""
        if self._watching is None or not self._watching.is_alive():
            self._watching = threading.Thread(target=self._act_when_lost, name="rallypoint-fence", daemon=True)
            self._watching.start()

    def _act_when_lost(self) -> None:
        loss = self._rendezvous.fenced()
        if loss is None:
            return
        doomed = workers()
        time.sleep(self._grace)
        if self._rendezvous.is_fenced:
            # In no other group yet, so whatever was started meanwhile was started for the one that is lost.
            doomed |= workers()
        killed = sum(kill(worker) for worker in doomed)
        if killed:
            logger.warning("killed %d processes of workers, whose place another node may have now: %s", killed, loss)


def workers() -> set[int]:
    """torchrun's workers, by their ids: each has a session of its own; or else ``multiprocessing`` started it."""
    here = os.getpid()
    leaders = {pid for pid, (parent, session) in _processes().items() if parent == here and session == pid}
    return leaders | {child.pid for child in multiprocessing.active_children() if child.pid is not None}


def kill(worker: int) -> int:
    """Ends a worker, and all that it started or that is in its session. Returns how many there were."""
    killed: set[int] = set()
    # Twice, for what is started while the first look is taken.
    for _ in range(2):
        doomed = _belonging_to(worker)
        for pid in doomed:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= doomed
    return len(killed)


def _belonging_to(worker: int) -> set[int]:
    processes = _processes()
    found = {pid for pid, (_, session) in processes.items() if worker in (pid, session)}
    while True:
        more = {pid for pid, (parent, _) in processes.items() if parent in found} - found
        if not more:
            return found
        found |= more


def _processes() -> dict[int, tuple[int, int]]:
    """The parent and the session of each process that lives."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            # The name, in parentheses, may hold anything.
            state, parent, _, session = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:4]
            if state not in (b"Z", b"X"):
                found[int(entry.name)] = (int(parent), int(session))
    return found
