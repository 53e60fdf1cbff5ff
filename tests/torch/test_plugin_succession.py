"""Stock torchrun outlives the host of its server: the hosts of the endpoint serve one after another. Hosts are network
namespaces, and the workers look at their start for those of other groups."""

import contextlib
import signal
import time

import pytest
from agents import lives
from hosts import Network

NODES = ["node0", "node1", "node2"]
OTHERS = NODES[1:]
FIVE = [*NODES, "node3", "node4"]

# Where agents wait until a lease is over, it is short, and long enough for a busy machine to renew it.
LEASE, SERVER_TIMEOUT = 4, 10

# Where no node is to wait until a lease is over. Without a proof, a successor waits for one and a half of it.
LONG_LEASE = 30

# The time in which a group forms that waits for no long lease, on a busy machine. The benchmark says how quick it is.
NOT_WAITED = 20


class Ground:
    """An agent on each host, and the group of all of them."""

    def __init__(
        self, network, make_job, names, nnodes, order=3, lease=LEASE, conf="", options=(), deeds=(), stubborn=(),
        **environment,
    ):  # fmt: skip
        self.network = network
        conf = f"lease_ttl={lease},server_timeout={SERVER_TIMEOUT}{conf}"
        endpoint = ",".join(f"{name}:29400" for name in names[:order])
        self.job = make_job(endpoint=endpoint, nnodes=nnodes, conf=conf)
        self.stubborn = stubborn
        for name in names:
            own = [*deeds, "stubborn"] if name in stubborn else deeds
            self.start(name, options=options, deeds=own, **environment)
        self.first = self.job.group(names)
        self.masters = self.job.masters()

    def start(self, name, host=None, deeds=(), **how):
        """An agent on the host of this name. A host has its own temporary files."""
        temporary = self.job.temporary / name
        temporary.mkdir()
        by = self.network.hosts[host or name].enter()
        self.job.start(name, by=by, deeds=["look", *deeds], TMPDIR=str(temporary), **how)

    def regroup(self, lost, names, failed=()):
        """Waits for the next group, which has these agents. A worker of those that have ``failed`` did so once for each
        time that they are named. Returns the seconds since the loss."""
        group = self.job.group(names, beyond=self.masters)
        taken = time.monotonic() - lost
        print(f"a group of {names} after {taken:.2f} s")
        self.masters = self.job.masters()
        # To an agent that was cut off, workers that the guard has killed are workers that have failed.
        cut_off = {"node0", *self.stubborn}
        for event in group:
            name = event["agent"]
            assert name in cut_off or event["restarts"] == failed.count(name), event
        return taken

    def workers(self, name):
        return [event["pid"] for event in self.first if event["agent"] == name]

    def end(self, names):
        """The workers are done, and these agents end well. There was one group at a time."""
        self.job.stop_workers()
        assert self.job.wait(*names) == dict.fromkeys(names, 0), self.job.report()
        strangers = [event for event in self.job.events() if "strangers" in event]
        assert not strangers, self.job.report()


@pytest.fixture
def ground(tmp_path, jobs):
    with contextlib.ExitStack() as networks:

        def make(names=NODES, nnodes="2:3", **how):
            network = Network(tmp_path, names)
            networks.callback(network.close)
            return Ground(network, jobs, names, nnodes, **how)

        yield make


def kill_agent(ground):
    ground.job.kill("node0")


def kill_host(ground, name="node0"):
    ground.network.hosts[name].kill()


def vanish(ground):
    ground.network.unplug("node0")
    kill_host(ground)


@pytest.mark.alone
@pytest.mark.parametrize("kill", [kill_agent, kill_host])
def test_the_head_is_killed(ground, kill):
    """Its death is proved, so nobody waits until a lease is over."""
    ground = ground(lease=LONG_LEASE)
    lost = time.monotonic()
    kill(ground)
    assert ground.regroup(lost, OTHERS) < NOT_WAITED
    ground.end(OTHERS)


@pytest.mark.alone
def test_the_host_of_the_head_vanishes(ground):
    ground = ground()
    lost = time.monotonic()
    vanish(ground)
    ground.regroup(lost, OTHERS)
    ground.end(OTHERS)


@pytest.mark.alone
def test_the_host_of_the_head_is_unplugged_and_comes_back(ground):
    ground = ground(stubborn=["node0"])
    lost = time.monotonic()
    ground.network.unplug("node0")
    ground.regroup(lost, OTHERS)
    assert not any(map(lives, ground.workers("node0")))
    ground.network.plug("node0")
    ground.regroup(time.monotonic(), NODES)
    ground.end(NODES)


@pytest.mark.alone
def test_the_agent_of_the_head_stands_still_and_comes_back(ground):
    ground = ground()
    lost = time.monotonic()
    ground.job.signal("node0", signal.SIGSTOP)
    ground.regroup(lost, OTHERS)
    assert not any(map(lives, ground.workers("node0")))
    time.sleep(max(0, 2 * LEASE - (time.monotonic() - lost)))
    ground.job.signal("node0", signal.SIGCONT)
    ground.regroup(time.monotonic(), NODES)
    ground.end(NODES)


@pytest.mark.alone
def test_the_head_is_cut_off_with_one_node(ground):
    ground = ground(FIVE, "2:5", stubborn=NODES[:2])
    lost = time.monotonic()
    ground.network.part(*NODES[:2])
    ground.regroup(lost, FIVE[2:])
    assert not any(lives(pid) for name in NODES[:2] for pid in ground.workers(name))
    ground.network.join(*NODES[:2])
    ground.regroup(time.monotonic(), FIVE)
    ground.end(FIVE)


@pytest.mark.alone
def test_the_head_and_both_of_its_successors_are_killed_in_turn(ground):
    """Two of the last three are more than half."""
    ground = ground(FIVE, "2:5", order=4, lease=LONG_LEASE)
    for number in range(3):
        lost = time.monotonic()
        kill_host(ground, FIVE[number])
        assert ground.regroup(lost, FIVE[number + 1 :]) < NOT_WAITED
    ground.end(FIVE[3:])


@pytest.mark.alone
def test_the_head_is_told_to_stop(ground):
    """It leaves in good order, and the others go on at the next host."""
    ground = ground()
    lost = time.monotonic()
    ground.job.signal("node0", signal.SIGTERM)
    ground.regroup(lost, OTHERS)
    assert ground.job.wait("node0") == {"node0": 1}, ground.job.report()
    ground.end(OTHERS)


@pytest.mark.alone
def test_restarts_are_counted_across_heads(ground):
    """An agent has used up what it has used up, whoever serves."""
    ground = ground(lease=LONG_LEASE)
    ground.job.fail_worker("node2")
    ground.regroup(time.monotonic(), NODES, failed=["node2"])
    lost = time.monotonic()
    kill_host(ground)
    assert ground.regroup(lost, OTHERS, failed=["node2"]) < NOT_WAITED
    ground.job.fail_worker("node2")
    ground.regroup(time.monotonic(), OTHERS, failed=["node2", "node2"])
    ground.end(OTHERS)


@pytest.mark.alone
def test_succession_can_be_turned_off(ground):
    """The other hosts of the order do not serve, though they are more than half of the group."""
    ground = ground(lease=LONG_LEASE, conf=",succession=off")
    lost = time.monotonic()
    kill_host(ground)
    for name in OTHERS:
        # They say so while they wait.
        ground.job.said(name, "the server to answer again")
    assert ground.job.wait(*OTHERS) == dict.fromkeys(OTHERS, 1), ground.job.report()
    assert time.monotonic() - lost > SERVER_TIMEOUT - 1
    assert ground.job.masters() == ground.masters


@pytest.mark.alone
def test_the_head_comes_back_under_its_name_and_another_address(ground):
    ground = ground()
    lost = time.monotonic()
    vanish(ground)
    ground.regroup(lost, OTHERS)
    ground.network.add("node0")
    ground.start("again", "node0")
    ground.regroup(time.monotonic(), ["again", *OTHERS])
    ground.end(["again", *OTHERS])


@pytest.mark.alone
def test_a_replacement_joins_at_the_successor(ground):
    ground = ground()
    lost = time.monotonic()
    kill_host(ground)
    ground.regroup(lost, OTHERS)
    ground.network.add("node3")
    ground.start("node3")
    ground.regroup(time.monotonic(), [*OTHERS, "node3"])
    ground.end([*OTHERS, "node3"])


@pytest.mark.alone
def test_workers_that_fail_with_the_head_do_not_end_the_job(ground):
    """Those of gloo do, as soon as a peer is gone."""
    ground = ground(lease=LONG_LEASE, options=["--max-restarts", "0"], deeds=["train"], GLOO_SOCKET_IFNAME="eth0")
    lost = time.monotonic()
    kill_host(ground)
    ground.regroup(lost, OTHERS)
    ground.end(OTHERS)


@pytest.mark.alone
def test_one_of_two_nodes_cannot_outvote_the_head(ground):
    ground = ground(NODES[:2], "1:2")
    lost = time.monotonic()
    vanish(ground)
    ground.job.said("node1", "two nodes cannot outvote each other")
    assert ground.job.wait("node1") == {"node1": 1}, ground.job.report()
    assert time.monotonic() - lost > SERVER_TIMEOUT - 1
    assert ground.job.masters() == ground.masters
