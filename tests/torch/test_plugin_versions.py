"""What other versions of PyTorch do differently, or might. `TORCH=2.6.0 make test-torch` runs on one of them."""

import contextlib

import pytest
from torch.distributed.elastic.agent.server import WorkerSpec, WorkerState
from torch.distributed.elastic.agent.server.api import RunResult
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.rendezvous import RendezvousParameters

import rallypoint
from rallypoint.torchrun import create_handler


@pytest.fixture
def run():
    """The handler of a node, and another view of its run."""
    with rallypoint.Server() as server, rallypoint.Rendezvous(server.endpoint, "run", 1, 1, backend="etcd") as other:
        yield create_handler(RendezvousParameters("etcd-v3", server.endpoint, "run", 1, 1, timeout=60)), other


def agent_of(handler, outcome, base=LocalElasticAgent):
    """A stock agent, but for what its workers do: come to this outcome."""

    class Agent(base):
        def _invoke_run(self, _):
            handler.next_rendezvous()
            return outcome()

    spec = WorkerSpec("", 1, handler, entrypoint="true", max_restarts=0, monitor_interval=0.1)
    return Agent(spec, logs_specs=DefaultLogsSpecs())


def succeeded():
    # By the rank that a worker has before it is told one.
    return RunResult(WorkerState.SUCCEEDED, return_values={-1: None})


def failed():
    return RunResult(WorkerState.FAILED)


def broken():
    raise OSError("no more of this")


def as_torch(launch):
    """The same function as a part of PyTorch."""
    return type(launch)(launch.__code__, {**launch.__globals__, "__name__": "torch.distributed.launcher.api"})


def test_an_agent_that_shuts_down_before_its_launcher_knows_why(run):
    """In PyTorch 2.6 and 2.7 it does; a job whose workers failed would be closed as one that is done."""
    handler, other = run

    class Agent(LocalElasticAgent):
        def _shutdown(self, *_, **__):
            assert handler.shutdown() and not other.is_closed()

    agent_of(handler, failed, Agent).run()
    assert not other.is_closed()
    assert handler.shutdown() and other.is_closed()
    with pytest.raises(rallypoint.RendezvousClosedError, match="failed, and no restart was left"):
        other.next_rendezvous()


def launch(agent, handler):
    """Unlike stock PyTorch's launcher, it does not end the handler while it handles the exception."""
    with contextlib.suppress(OSError):
        agent.run()
    handler.shutdown()


@pytest.mark.parametrize(
    ("outcome", "closed"), [(succeeded, "done"), (failed, "failed, and no restart was left"), (broken, None)]
)
def test_a_launcher_that_has_handled_the_failure_of_its_agent(run, outcome, closed):
    handler, other = run
    as_torch(launch)(agent_of(handler, outcome), handler)
    assert other.is_closed() == (closed is not None)
    if closed:
        with pytest.raises(rallypoint.RendezvousClosedError, match=closed):
            other.next_rendezvous()


def run_otherwise(handler):
    """It is unknown whether this ends in success."""
    handler.next_rendezvous()
    return handler.shutdown()


def test_a_launcher_that_runs_its_agent_in_another_way(run):
    handler, other = run
    with pytest.raises(rallypoint.RendezvousStateError, match="it is unknown whether the workers succeeded"):
        as_torch(run_otherwise)(handler)
    assert not other.is_closed()


def test_somebody_who_ends_a_handler_by_hand(run):
    handler, other = run
    assert run_otherwise(handler) and other.is_closed()
