"""What becomes of the agent that a handler works for. PyTorch's launcher tells its handler nothing of it.

So the method by which every agent runs is wrapped, and an agent whose handler is ours says when it begins and how it
ends.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, NamedTuple, Optional

from torch.distributed.elastic.agent.server import SimpleElasticAgent, WorkerGroup, WorkerState
from torch.distributed.elastic.agent.server.api import RunResult

# The wrapped method has this attribute.
_MARK = "_rallypoint"


class StartedWorkers(NamedTuple):
    """Workers that an agent has started: what it knows them by, in the order of their ranks, from this rank on; and
    the files that their output goes to, if it does."""

    ids: list[Any]
    base_rank: int
    logs: list[str]


class Course:
    """How far an agent has come. A handler has one, by the name of ``course``."""

    def __init__(self) -> None:
        self.agent: Optional[SimpleElasticAgent] = None
        self.is_running = False
        # The workers have failed for good; or they succeeded, or there were none.
        self.has_failed = False
        # Something other than workers has ended the agent.
        self.error: Optional[BaseException] = None
        # What is called before workers are started; with those that were; with the local ranks and exit codes of
        # those that failed; and before they are stopped.
        self.before_start: Callable[[], None] = lambda: None
        self.on_start: Callable[[StartedWorkers], None] = lambda _: None
        self.on_failure: Callable[[list[tuple[int, int]]], None] = lambda _: None
        self.before_stop: Callable[[], None] = lambda: None

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
        start, monitor, stop = agent._start_workers, agent._monitor_workers, agent._stop_workers

        def start_and_tell(group: WorkerGroup) -> dict[int, Any]:
            course.before_start()
            ids = start(group)
            ranks = [worker.global_rank for worker in group.workers]
            course.on_start(StartedWorkers([ids[rank] for rank in sorted(ids)], min(ranks, default=0), _logs(agent)))
            return ids

        def monitor_and_tell(group: WorkerGroup) -> RunResult:
            result = monitor(group)
            if result.is_failed():
                course.on_failure([(one.local_rank, one.exitcode) for one in result.failures.values()])
            return result

        def tell_and_stop(*args: Any, **kwargs: Any) -> None:
            course.before_stop()
            stop(*args, **kwargs)

        agent._start_workers, agent._stop_workers = start_and_tell, tell_and_stop
        agent._monitor_workers = monitor_and_tell
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


def _logs(agent: SimpleElasticAgent) -> list[str]:
    """The files that the output of the workers goes to; none if it goes where the agent's own goes."""
    context = getattr(agent, "_pcontext", None)
    streams = (getattr(context, name, None) for name in ("stdouts", "stderrs"))
    paths = (path for stream in streams if isinstance(stream, dict) for path in stream.values())
    return [path for path in paths if path and path != os.devnull]
