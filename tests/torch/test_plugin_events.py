"""Events of a rendezvous in PyTorch's format: a program that takes those of PyTorch's handlers gets ours too."""

import dataclasses
import json
import pathlib
import socket

from torch.distributed.elastic.events import NodeState, RdzvEvent

LAUNCHER = str(pathlib.Path(__file__).with_name("recording_launcher.py"))


def recorded(job, name):
    lines = (job.directory / f"{name}.rdzv").read_text().splitlines()
    assert all(set(json.loads(line)) == {field.name for field in dataclasses.fields(RdzvEvent)} for line in lines)
    return [RdzvEvent.deserialize(line) for line in lines]


def start(job, name):
    job.start(name, program=[LAUNCHER], RDZV_EVENTS=str(job.directory / f"{name}.rdzv"))


def joined(events):
    return [event for event in events if "has joined round" in event.message]


def test_events_are_those_of_a_stock_handler(jobs, c10d):
    """The same turns, in the same words as far as others may look for them."""
    with c10d(nnodes="1") as stock:
        ours = jobs(nnodes="1")
        for job in (stock, ours):
            start(job, "a")
            job.group("a")
            job.stop_workers()
            assert job.wait() == {"a": 0}, job.report()
        theirs, events = recorded(stock, "a"), recorded(ours, "a")
    (expected,), (found,) = joined(theirs), joined(events)
    assert expected.name.endswith("Handler.next_rendezvous") and found.name.endswith("Handler.next_rendezvous")
    assert (found.rank, found.node_state, found.run_id) == (expected.rank, expected.node_state, "job")
    assert "as rank 0 in a world of size 1." in expected.message and "as rank 0 in a world of size 1." in found.message
    assert found.pid == ours.agents["a"].pid and found.hostname == socket.gethostname()
    assert found.master_endpoint == ours.events()[0]["master"]
    methods = [(event.name.rpartition(".")[2], event.node_state) for event in events]
    assert methods == [
        ("__init__", NodeState.INIT), ("next_rendezvous", NodeState.RUNNING), ("next_rendezvous", NodeState.RUNNING),
        ("shutdown", NodeState.SUCCEEDED),
    ]  # fmt: skip


def test_a_change_and_a_failure_have_their_reasons(jobs):
    job = jobs(nnodes="1:2")
    start(job, "a")
    job.group("a")
    job.start("b")
    job.group("ab")
    job.kill("b")
    job.group("a", beyond=job.masters())
    job.fail_worker("a")
    reasons = [event.message for event in recorded(job, "a") if event.name.endswith("num_nodes_waiting")]
    assert "a node waits to join" in reasons[0] and "members were lost" in reasons[1], reasons
    assert [event.rank for event in joined(recorded(job, "a"))][:3] == [0, 0, 0]
    refused = jobs(endpoint=job.endpoint, nnodes="2:2", run_id=job.run_id, conf="timeout=2,is_host=false")
    start(refused, "c")
    assert refused.wait() == {"c": 1}
    last = [event for event in recorded(refused, "c") if event.node_state == NodeState.FAILED][0]
    assert last.message.startswith("Rendezvous") and "Traceback" in last.error_trace, last
