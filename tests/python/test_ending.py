"""How a node's part ends, and how the other nodes react."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from test_rendezvous import NODE, meet, node, until

import rallypoint
from rallypoint import _fence


def test_when_one_node_is_done_other_nodes_finish_undisturbed(server):
    one, other = node(server, 2, 2), node(server, 2, 2)
    meet(one, other)
    assert one.shutdown()
    until(other.is_closed)
    assert other.num_nodes_waiting() == 0 and other.stop_reason is None
    assert other.shutdown()


def test_when_one_node_has_failed_for_good_other_nodes_must_stop(server):
    one, other = node(server, 2, 2), node(server, 2, 2)
    meet(one, other)
    assert one.shutdown(success=False, reason="rank 1 ran out of memory")
    until(lambda: other.num_nodes_waiting() > 0)
    assert other.stop_reason.endswith(": failed: rank 1 ran out of memory")
    with pytest.raises(rallypoint.RendezvousClosedError, match=f"{one.node_id}.*failed: rank 1 ran out of memory"):
        other.next_rendezvous()


def test_a_node_that_closes_the_run_itself_is_not_disturbed(server):
    alone = node(server, 1, 1)
    alone.next_rendezvous()
    alone.set_closed("enough")
    until(alone.is_closed)
    assert alone.num_nodes_waiting() == 0


def test_what_fails_because_another_is_gone_does_not_end_the_run(server, caplog):
    nodes = [node(server, 2, 3, last_call_timeout=60) for _ in range(3)]
    meet(*nodes)
    gone, broken, healthy = nodes
    gone.leave()
    # The node that opened the round coordinates it.
    causes = ("a member was lost", f"members were lost: {gone.node_id}")
    until(lambda: healthy.stop_reason in causes)
    assert broken.shutdown(success=False, reason="its peer was gone")
    until(lambda: "so its other members decide about the run" in caplog.text)
    until(lambda: healthy.num_nodes_waiting() > 0)
    assert not healthy.is_closed()
    healthy.shutdown(success=False)


def test_others_who_meet_again_because_of_a_failure_are_told_of_it(server):
    """Their workers break with those that failed, so they come back at once, and are no sign of a lost member."""
    failed, other = node(server, 2, 2), node(server, 2, 2)
    meet(failed, other)
    with ThreadPoolExecutor(1) as pool:
        again = pool.submit(other.next_rendezvous)
        until(lambda: failed.num_nodes_waiting() > 0)
        assert failed.shutdown(success=False, reason="out of memory")
        with pytest.raises(rallypoint.RendezvousClosedError, match="out of memory"):
            again.result(60)


def test_what_fails_because_another_was_killed_does_not_end_the_run(server, python):
    """Not even if the other nodes form another group, and the reason is no longer known."""
    broken, healthy = (node(server, 2, 3, last_call_timeout=60) for _ in range(2))
    victim = python(NODE, server.endpoint, 2, 3, 60)
    meet(broken, healthy)
    victim.kill()
    until(lambda: broken.num_nodes_waiting() > 0 and healthy.num_nodes_waiting() > 0)
    with ThreadPoolExecutor(1) as pool:
        again = pool.submit(healthy.next_rendezvous)
        assert broken.shutdown(success=False, reason="its peer was gone")
        assert not again.done()
        newcomer = node(server, 2, 3, last_call_timeout=60)
        assert newcomer.next_rendezvous().world_size == again.result(60).world_size == 2
    assert not newcomer.is_closed()


def test_who_is_done_does_not_end_the_run_for_those_who_meet_again(server):
    done, failed, other = nodes = [node(server, 1, 3, last_call_timeout=60) for _ in range(3)]
    meet(*nodes)
    with ThreadPoolExecutor(2) as pool:
        again = [pool.submit(one.next_rendezvous) for one in (failed, other)]
        until(lambda: done.num_nodes_waiting() > 0)
        assert done.shutdown()
        assert [group.result(60).world_size for group in again] == [2, 2]


def test_no_later_group_forms_while_a_member_may_have_workers(server):
    # Long enough for three to meet, and over when two have waited for the third.
    slow, *others = nodes = [node(server, 1, 3, last_call_timeout=2) for _ in range(3)]
    meet(*nodes)
    with ThreadPoolExecutor(2) as pool:
        again = [pool.submit(one.next_rendezvous) for one in others]
        until(lambda: slow.num_nodes_waiting() > 0)
        time.sleep(3)
        assert not any(meeting.done() for meeting in again)
        slow.leave()
        assert [group.result(60).world_size for group in again] == [2, 2]


def test_a_success_has_no_reason(server):
    with pytest.raises(rallypoint.ParameterError, match="a success has none"):
        node(server, 1, 1).shutdown(reason="tired")


def test_a_run_that_cannot_be_closed_is_left_nevertheless():
    server = rallypoint.Server()
    alone = node(server, 1, 1, lease_ttl=600)
    alone.next_rendezvous()
    server.stop()
    # It would be waited for much longer if it mattered.
    assert alone.shutdown() is False


def test_who_has_lost_its_place_is_told(server):
    alone = node(server, 1, 1, lease_ttl=2)
    alone.next_rendezvous()
    with ThreadPoolExecutor(1) as pool:
        fenced = pool.submit(alone.fenced)
        time.sleep(0.3)
        assert not fenced.done() and not alone.is_fenced
        server.stop()
        assert "was not renewed" in fenced.result(60)
    assert alone.is_fenced and alone.num_nodes_waiting() == 1
    assert alone.stop_reason.startswith("the session was lost: ")


def test_shutdown_ends_a_wait_for_the_loss_of_the_session(server):
    alone = node(server, 1, 1)
    alone.next_rendezvous()
    with ThreadPoolExecutor(1) as pool:
        fenced = pool.submit(alone.fenced)
        alone.shutdown()
        assert fenced.result(60) is None


# A worker that does not want to end, with a child in its session and one in another; it says which they are.
STUBBORN = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
print(subprocess.Popen(sleep).pid, subprocess.Popen(sleep, start_new_session=True).pid, flush=True)
signal.pause()
"""


def test_workers_are_ended_with_all_that_they_started(server):
    alone = node(server, 1, 1, lease_ttl=2)
    alone.next_rendezvous()
    _fence.Fence(alone, list).watch()
    worker = subprocess.Popen(
        [sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    # A child that is no worker: it is in the session of this program.
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with worker, bystander:
        children = set(map(int, worker.stdout.readline().split()))
        found = {process.pid for process in _fence.workers()}
        assert worker.pid in found and bystander.pid not in found
        server.stop()
        assert worker.wait(60) == -9
        until(lambda: not children & {process.pid for process in _fence._processes()})
        assert bystander.poll() is None
        bystander.communicate(b"\n")
