"""Descriptors for a connection of every node and every worker, in a process whose workers do not get as many.

Programs that use ``select`` cannot live with descriptors above 1,023, so workers are to have the soft limit that was
there. The system knows one limit for a process, and torchrun starts its workers in this one. So theirs is set back
as soon as they have begun; and nothing is raised for a job that is small enough.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterable
from typing import Any, Optional

from rallypoint import _native


class Room:
    """For the connections of the nodes to a server, and of them and their workers to rank 0's store, all of which may
    be in this process."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._before: Optional[int] = None
        # A server looks at the limit when it begins. How many workers there are is not known by then.
        self.make(local_workers=0)

    def make(self, local_workers: int) -> None:
        """For this number of workers of each node."""
        before = _native.make_room(self._nodes * (local_workers + 2))
        self._before = before if self._before is None else self._before

    def set_back(self, workers: Iterable[Any]) -> None:
        """Gives workers, which have just begun, the limit that was there before."""
        if self._before is None:
            return
        for worker in workers:
            # It may have ended, or be another user's.
            with contextlib.suppress(OSError, TypeError, ValueError):
                _, hard = resource.prlimit(worker, resource.RLIMIT_NOFILE)
                resource.prlimit(worker, resource.RLIMIT_NOFILE, (self._before, hard))
