"""What becomes of the agent that a handler works for. PyTorch's launcher tells its handler nothing of it.

So the method by which every agent runs is wrapped, and an agent whose handler is ours says when it begins and how it
ends.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Optional

from torch.distributed.elastic.agent.server import SimpleElasticAgent, WorkerGroup, WorkerState
from torch.distributed.elastic.agent.server.api import RunResult

# The wrapped method has this attribute.
_MARK = "_rallypoint"


class Course:
    """How far an agent has come. A handler has one, by the name of ``course``."""

    def __init__(self) -> None:
        self.agent: Optional[SimpleElasticAgent] = None
        self.is_running = False
        # The workers have failed for good; or they succeeded, or there were none.
        self.has_failed = False
        # Something other than workers has ended the agent.
        self.error: Optional[BaseException] = None
        # What is called with the ids of workers that were just started.
        self.on_start: Callable[[Iterable[Any]], None] = lambda _: None

    @property
    def local_workers(self) -> int:
        """How many workers the agent starts; 1 as long as that is not known."""
        return self.agent.get_worker_group().spec.local_world_size if self.agent else 1

    def worker_ids(self) -> list[Any]:
        """What the agent knows its workers by, as long as they run: the numbers of their processes."""
        if self.agent is None:
            return []
        group = self.agent.get_worker_group()
        return [worker.id for worker in group.workers] if group.state == WorkerState.HEALTHY else []


def watch_agents() -> None:
    """Agents that run from now on are watched, if their handler has a course."""
    run = SimpleElasticAgent.run
    if hasattr(run, _MARK):
        return

    @functools.wraps(run)
    def watched(agent: SimpleElasticAgent, *args: Any, **kwargs: Any) -> RunResult:
        course = getattr(agent.get_worker_group().spec.rdzv_handler, "course", None)
        if not isinstance(course, Course):
            return run(agent, *args, **kwargs)
        course.agent, course.is_running = agent, True
        start = agent._start_workers

        def start_and_tell(group: WorkerGroup) -> dict[int, Any]:
            ids = start(group)
            course.on_start(ids.values())
            return ids

        agent._start_workers = start_and_tell
        try:
            result: Optional[RunResult] = run(agent, *args, **kwargs)
            if result is None:
                # An agent that gracefully exits, as that of a spare does which was not needed, has none, and its
                # launcher fails when it asks for that (pytorch#194710). It is that of a node without workers.
                result = RunResult(state=WorkerState.SUCCEEDED)
            course.has_failed = result.is_failed()
            return result
        except BaseException as error:
            course.error = error
            raise
        finally:
            course.is_running = False

    setattr(watched, _MARK, True)
    SimpleElasticAgent.run = watched
