"""Stock torchrun outlives the host of its server: the hosts of the endpoint serve one after another. Hosts are network
namespaces, and the workers look at their start for those of other groups."""

import signal
import time

import pytest
from agents import lives
from hosts import Network

NODES = ["node0", "node1", "node2"]
OTHERS = NODES[1:]

LEASE, SERVER_TIMEOUT = 4, 10

# Until the old side has ended, and what a busy machine takes to form a group. The benchmark says how quick it is.
PROMISE = LEASE * 1.5 + 8


class Ground:
    """An agent on each host, and the group of all of them."""

    def __init__(self, network, make_job, names, nnodes, options=(), deeds=(), stubborn=(), **environment):
        self.network, self.names = network, names
        conf = f"lease_ttl={LEASE},server_timeout={SERVER_TIMEOUT}"
        endpoint = ",".join(f"{name}:29400" for name in names)
        self.job = make_job(endpoint=endpoint, nnodes=nnodes, conf=conf)
        for name in names:
            own = [*deeds, "stubborn"] if name in stubborn else deeds
            by = network.hosts[name].enter()
            self.job.start(name, by=by, options=options, deeds=["look", *own], **environment)
        self.first = self.job.group(names)
        self.masters = self.job.masters()

    def regroup(self, lost, names):
        """Waits for the next group, which has these agents."""
        group = self.job.group(names, beyond=self.masters)
        taken = time.monotonic() - lost
        print(f"a group of {names} after {taken:.2f} s")
        self.masters = self.job.masters()
        # To the agent of the head, workers that the guard has killed are workers that have failed.
        assert {event["restarts"] for event in group if event["agent"] in OTHERS} == {0}, "no worker has failed"
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
    network = Network(tmp_path, NODES)
    try:
        yield lambda names=NODES, nnodes="2:3", **how: Ground(network, jobs, names, nnodes, **how)
    finally:
        network.close()


def kill_agent(ground):
    ground.job.kill("node0")


def kill_host(ground):
    ground.network.hosts["node0"].kill()


def vanish(ground):
    ground.network.unplug("node0")
    kill_host(ground)


@pytest.mark.parametrize("lose", [kill_agent, kill_host, vanish])
def test_the_head_is_lost(ground, lose):
    ground = ground()
    lost = time.monotonic()
    lose(ground)
    assert ground.regroup(lost, OTHERS) < PROMISE
    ground.end(OTHERS)


def test_the_host_of_the_head_is_unplugged_and_comes_back(ground):
    ground = ground(stubborn=["node0"])
    lost = time.monotonic()
    ground.network.unplug("node0")
    assert ground.regroup(lost, OTHERS) < PROMISE
    assert not any(map(lives, ground.workers("node0")))
    ground.network.plug("node0")
    ground.regroup(time.monotonic(), NODES)
    ground.end(NODES)


def test_the_agent_of_the_head_stands_still_and_comes_back(ground):
    ground = ground()
    lost = time.monotonic()
    ground.job.signal("node0", signal.SIGSTOP)
    assert ground.regroup(lost, OTHERS) < PROMISE
    assert not any(map(lives, ground.workers("node0")))
    time.sleep(max(0, 2 * LEASE - (time.monotonic() - lost)))
    ground.job.signal("node0", signal.SIGCONT)
    ground.regroup(time.monotonic(), NODES)
    ground.end(NODES)


def test_workers_that_fail_with_the_head_do_not_end_the_job(ground):
    """Those of gloo do, as soon as a peer is gone."""
    ground = ground(options=["--max-restarts", "0"], deeds=["train"], GLOO_SOCKET_IFNAME="eth0")
    lost = time.monotonic()
    kill_host(ground)
    ground.regroup(lost, OTHERS)
    ground.end(OTHERS)


def test_one_of_two_nodes_cannot_outvote_the_head(ground):
    ground = ground(NODES[:2], "1:2")
    lost = time.monotonic()
    vanish(ground)
    ground.job.said("node1", "two nodes cannot outvote each other")
    assert ground.job.wait("node1") == {"node1": 1}, ground.job.report()
    assert time.monotonic() - lost > SERVER_TIMEOUT - 1
    assert ground.job.masters() == ground.masters
