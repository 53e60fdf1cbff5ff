"""torchrun's workers end with their agent, whatever ends that, and the other nodes can see that they have."""

from __future__ import annotations

import logging
import os
import secrets
from typing import Optional

from rallypoint._native import Guard
from rallypoint.errors import RallypointError

logger = logging.getLogger("rallypoint.torchrun")

# A variable that only the workers of this agent have in their environment.
MARK = "RALLYPOINT_NODE"


class WorkerGuard:
    """The guard of an agent that has no workers yet. From here on those that it starts are known to the guard."""

    def __init__(self, endpoint: str, local_addr: Optional[str]) -> None:
        self.guard: Optional[Guard] = None
        self._value = secrets.token_hex(16)
        try:
            guard = Guard(endpoint, local_addr)
            guard.mark(MARK, self._value)
        except (OSError, RallypointError) as error:
            logger.warning("if this agent is killed, its workers may outlive it: %s", error)
            return
        self.guard = guard
        os.environ[MARK] = self._value

    def close(self) -> None:
        """The workers have ended in good order. What they have left behind is theirs."""
        if os.environ.get(MARK) == self._value:
            del os.environ[MARK]
        if self.guard is not None:
            self.guard.close()
