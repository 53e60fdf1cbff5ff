"""Nodes meet, without PyTorch: some in this process, some in others."""

import asyncio
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import rallypoint

# A node of its own process: it joins, says so, and then does as it is told on its standard input.
NODE = """
import sys, rallypoint
endpoint, low, high, last_call = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
rendezvous = rallypoint.Rendezvous(endpoint, "job", low, high, last_call_timeout=last_call, is_host=False)
print("here")
try:
    group = rendezvous.next_rendezvous()
except KeyboardInterrupt:
    print("interrupted")
    rendezvous.shutdown(success=False)
    sys.exit(130)
print("rank", group.rank, "of", group.world_size)
sys.stdin.readline()
rendezvous.shutdown()
"""


def node(server, low, high, **options):
    options = {"last_call_timeout": 0.2, "is_host": False, "timeout": 60, **options}
    return rallypoint.Rendezvous(server.endpoint, "job", low, high, **options)


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def meet(*nodes):
    with ThreadPoolExecutor(len(nodes)) as pool:
        return list(pool.map(lambda node: node.next_rendezvous(), nodes))


def test_two_nodes(server):
    one, other = node(server, 2, 2), node(server, 2, 2)
    groups = meet(one, other)
    assert sorted(group.rank for group in groups) == [0, 1]
    assert {(group.world_size, group.round) for group in groups} == {(2, 1)}
    assert len({(group.master_addr, group.master_port) for group in groups}) == 1
    groups[0].store.set("key", "value")
    assert groups[1].store.get("key") == b"value"
    # The store for the workers is there already.
    store = rallypoint.TcpStore(groups[0].master_addr, groups[0].master_port)
    assert store.add("arrived", 1) == 1
    assert one.use_agent_store and not one.serves
    assert (one.run_id, one.backend, one.num_nodes_waiting(), one.is_closed()) == ("job", "rallypoint", 0, False)
    assert one.node_id != other.node_id
    # Who leaves is missed; the run stays open.
    one.leave()
    until(lambda: other.num_nodes_waiting() > 0)
    again = meet(one, other)
    assert {(group.world_size, group.round) for group in again} == {(2, 2)}
    assert one.shutdown()
    until(other.is_closed)
    with pytest.raises(rallypoint.RendezvousClosedError, match="done: all workers succeeded"):
        other.next_rendezvous()


def test_the_host_that_is_named_serves(free_port):
    """The same call on each node, nothing else started; and the one that serves stays for the other."""
    endpoint = f"127.0.0.1:{free_port}"

    def life(_):
        with rallypoint.Rendezvous(endpoint, "job", 2, 2) as rendezvous:
            group = rendezvous.next_rendezvous()
            group.store.barrier("done", 2, 60)
            return rendezvous.serves, group.world_size

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(life, range(2))) == [(False, 2), (True, 2)]


def test_a_server_that_is_late_is_waited_for(free_port):
    endpoint = f"127.0.0.1:{free_port}"
    with ThreadPoolExecutor(1) as pool:
        early = pool.submit(rallypoint.Rendezvous, endpoint, "job", 1, 1, is_host=False)
        time.sleep(0.3)
        assert not early.done()
        with rallypoint.Server(endpoint):
            assert early.result().next_rendezvous().world_size == 1
            early.result().shutdown()


def test_a_node_that_is_killed_is_missed(server, python):
    survivor = node(server, 1, 2, last_call_timeout=60)
    other = python(NODE, server.endpoint, 1, 2, 60)
    # The first to come waits for the second, for as long as the last call lasts.
    assert survivor.next_rendezvous().world_size == 2
    other.kill()
    until(lambda: survivor.num_nodes_waiting() > 0)
    survivor.shutdown()


def test_ctrl_c_ends_a_wait_and_leaves_the_run_to_other_nodes(server, python):
    waiting = python(NODE, server.endpoint, 2, 2, 60)
    assert waiting.stdout.readline() == "here\n"
    time.sleep(0.2)
    waiting.send_signal(signal.SIGINT)
    assert waiting.stdout.readline() == "interrupted\n"
    assert waiting.wait(60) == 130
    # It is no part of the group that forms now.
    one, other = node(server, 2, 3, last_call_timeout=0), node(server, 2, 3, last_call_timeout=0)
    assert {group.world_size for group in meet(one, other)} == {2}
    one.shutdown()


def test_a_spare_is_not_needed(server):
    member, spare = node(server, 1, 1), node(server, 1, 1)
    member.next_rendezvous()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(spare.next_rendezvous)
        time.sleep(0.1)
        assert member.num_nodes_waiting() == 0
        member.shutdown()
        with pytest.raises(rallypoint.RendezvousGracefulExitError):
            waiting.result()
    # One that only waited closes nothing, and has nothing left to close.
    assert spare.shutdown()


def test_a_node_that_never_ran_in_a_run_without_a_name_has_not_succeeded(server):
    """That is torchrun's word for it, which two jobs would share."""
    options = {"is_host": False, "timeout": 60}
    member, other = (rallypoint.Rendezvous(server.endpoint, "none", 1, 1, **options) for _ in range(2))
    member.next_rendezvous()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.next_rendezvous)
        time.sleep(0.1)
        member.shutdown()
        with pytest.raises(rallypoint.RendezvousStateError, match="this node never ran.*--rdzv-id"):
            waiting.result()


def test_a_run_that_is_over_is_opened_again_on_request(server):
    with node(server, 1, 1) as first:
        first.next_rendezvous()
    assert node(server, 1, 1).is_closed()
    with node(server, 1, 1, reopen=True) as again:
        assert not again.is_closed()
        assert again.next_rendezvous().world_size == 1


def test_a_block_that_raises_leaves_the_run_open(server):
    with pytest.raises(ZeroDivisionError):
        with node(server, 1, 2) as rendezvous:
            rendezvous.next_rendezvous()
            raise ZeroDivisionError
    with node(server, 1, 2) as rendezvous:
        assert not rendezvous.is_closed()


def test_asyncio(server):
    async def both():
        one, other = node(server, 2, 2), node(server, 2, 2)
        groups = await asyncio.gather(asyncio.to_thread(one.next_rendezvous), asyncio.to_thread(other.next_rendezvous))
        await asyncio.to_thread(one.shutdown)
        return sorted(group.rank for group in groups)

    assert asyncio.run(both()) == [0, 1]


@pytest.mark.parametrize(
    "endpoint, options, error, words",
    [
        ("", {}, rallypoint.ParameterError, "2 nodes need a place to meet"),
        ("127.0.0.1:1", {"lease_tll": 3}, ValueError, "did you mean lease_ttl"),
        ("127.0.0.1:1", {"is_hots": 1}, ValueError, "did you mean is_host"),
        ("127.0.0.1:1", {"lease_ttl": 1}, ValueError, 'lease_ttl "1"'),
        ("a,b", {"is_host": True}, ValueError, "contradict each other"),
        ("127.0.0.1:1", {"backend": "ralypoint"}, ValueError, "give one of rallypoint, etcd, etcd-v3"),
        ("127.0.0.1:1", {"is_host": False, "timeout": 0.2}, ConnectionError, "127.0.0.1:1"),
        ("127.0.0.1:1", {"backend": "etcd", "timeout": 0.2}, ConnectionError, "127.0.0.1:1"),
    ],
)
def test_what_is_wrong_is_named(endpoint, options, error, words):
    with pytest.raises(error, match=words):
        rallypoint.Rendezvous(endpoint, "job", 1, 2, **options)


def test_no_group_in_time(server):
    with pytest.raises(rallypoint.RendezvousTimeoutError, match="1 of at least 2"):
        node(server, 2, 2, timeout=0.3).next_rendezvous()


def test_a_password():
    with rallypoint.Server(user="u", password="right") as server:
        node(server, 1, 1, user="u", password="right").next_rendezvous()
        with pytest.raises(rallypoint.RendezvousConnectionError, match="authentication failed"):
            node(server, 1, 1, user="u", password="wrong")
