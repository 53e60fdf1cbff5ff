"""Our backends under stock torchrun: the same jobs as with PyTorch's own, and what PyTorch's own do not manage."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest
from agents import Job, free_port
from servers import HOST, TARGET

import rallypoint

os.environ.setdefault(
    "TORCHELASTIC_ETCD_BINARY_PATH",
    os.environ.get("RALLYPOINT_ETCD_3_5", str(TARGET / "tools" / "etcd-3.5" / "etcd")),
)


class Etcd:
    """A real etcd, which comes back where it was."""

    def __init__(self, data):
        port, peers = free_port(), free_port()
        self.endpoint = f"{HOST}:{port}"
        self.command = [
            os.environ["TORCHELASTIC_ETCD_BINARY_PATH"], "--data-dir", str(data), "--log-level", "error",
            "--listen-client-urls", f"http://{HOST}:{port}", "--advertise-client-urls", f"http://{HOST}:{port}",
            "--listen-peer-urls", f"http://{HOST}:{peers}",
        ]  # fmt: skip
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command)

    def stop(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


@pytest.fixture
def etcd():
    with rallypoint.EtcdServer() as etcd:
        yield etcd


@pytest.fixture(params=["rallypoint", "etcd-v3"])
def job(request, tmp_path):
    """Makes a job: with nothing else started, and on a real etcd."""
    endpoint = None
    if request.param == "etcd-v3":
        endpoint = request.getfixturevalue("etcd").get_endpoint()
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(Job(tmp_path, request.param, endpoint, **options))


@pytest.fixture
def embedded(tmp_path):
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(Job(tmp_path, **options))


def trained(job):
    """What comes of four agents with two workers each."""
    names = ["a", "b", "c", "d"]
    for name in names:
        job.start(name)
    group = job.group(names, 8)
    job.stop_workers()
    codes = job.wait_all()
    return {
        "codes": codes,
        "ranks": sorted(event["rank"] for event in group),
        "nodes": sorted(event["node"] for event in group),
        "totals": {event["total"] for event in group},
        "restarts": {event["restarts"] for event in group},
        "done": len(job.events(done=True)),
    }


def test_four_agents_train_as_with_pytorchs_own(job, tmp_path):
    stock = tmp_path / "stock"
    stock.mkdir()
    with Job(stock, "c10d", nnodes="4", nproc=2) as theirs:
        expected = trained(theirs)
    assert expected["codes"] == dict.fromkeys("abcd", 0)
    assert trained(job(nnodes="4", nproc=2)) == expected


def test_a_worker_fails_and_all_start_again(job):
    """PyTorch's own hands the addresses of the dead to the new workers (D1)."""
    job = job(nnodes="2", nproc=2)
    job.start("a", "--max-restarts", "1", deeds=["fail-once"])
    job.start("b", "--max-restarts", "1")
    first = job.group("ab", 4)
    again = job.group("ab", 4, beyond={first[0]["master"]})
    assert {event["restarts"] for event in again if event["agent"] == "a"} == {1}
    job.stop_workers()
    assert job.wait_all() == {"a": 0, "b": 0}


def test_rank_0_is_killed_and_the_others_are_told_of_the_new_one(job):
    """With PyTorch's own, survivors are told of the dead one (D2). If rank 0's agent served, another takes over."""
    job = job(nnodes="2:3", conf="last_call_timeout=60")
    for name in "abc":
        job.start(name)
    first = job.group("abc", 3)
    victim = next(event for event in first if event["rank"] == 0)
    job.kill(victim)
    rest = set("abc") - {victim["agent"]}
    again = job.group(rest, 2, beyond={victim["master"]})
    assert sorted(event["rank"] for event in again) == [0, 1]
    job.stop_workers()
    assert [job.wait(name) for name in sorted(rest)] == [0, 0]


def test_a_host_that_vanishes_is_missed_before_any_collective_times_out(job):
    """An agent is killed and its worker stopped, so nobody tells the others anything (pytorch#111646)."""
    job = job(nnodes="2:3", conf="last_call_timeout=60")
    for name in "abc":
        job.start(name)
    first = job.group("abc", 3)
    victim = next(event for event in first if event["rank"] == 2)
    os.kill(victim["pid"], signal.SIGSTOP)
    job.agents[victim["agent"]].kill()
    rest = set("abc") - {victim["agent"]}
    job.group(rest, 2, beyond={victim["master"]})
    job.stop_workers()
    assert [job.wait(name) for name in sorted(rest)] == [0, 0]


def test_a_spare_waits_takes_over_and_ends_well(job):
    """PyTorch's own launcher fails on a spare that was not needed (D3)."""
    job = job(nnodes="2", conf="last_call_timeout=60")
    for name in "ab":
        job.start(name)
    first = job.group("ab", 2)
    for name in "cd":
        job.start(name, LOGLEVEL="INFO")
        job.until(lambda: "Rendezvous'ing worker group" in job.output(name), "a spare")
    assert len(job.events(world=2)) == 2
    victim = next(event for event in first if event["rank"] == 1)
    job.kill(victim)

    def taken_over():
        members = [event for event in job.events(world=2) if event["master"] != victim["master"]]
        return members if len(members) == 2 else None

    again = job.until(taken_over, "a group with a spare")
    assert len({event["agent"] for event in again} & set("cd")) == 1
    job.stop_workers()
    codes = job.wait_all()
    assert codes.pop(victim["agent"]) == -signal.SIGKILL
    assert set(codes.values()) == {0}, job.report()


def test_nodes_come_and_go(job):
    job = job(nnodes="1:2", conf="last_call_timeout=1")
    job.start("a")
    alone = job.group("a", 1)
    job.start("b")
    both = job.group("ab", 2)
    assert {event["restarts"] for event in both} == {0}
    job.agents["b"].send_signal(signal.SIGTERM)
    assert job.wait("b") == 1
    again = job.group("a", 1, beyond={alone[0]["master"]})
    assert again[0]["restarts"] == 0
    job.stop_workers()
    assert job.wait("a") == 0


def test_the_server_is_late(embedded):
    job = embedded(nnodes="2")
    job.start("early", "--rdzv-conf", "is_host=false")
    job.until(lambda: "waiting for a server" in job.output("early"), "a word of waiting")
    job.start("host")
    job.group(["early", "host"], 2)
    job.stop_workers()
    assert job.wait_all() == {"early": 0, "host": 0}


@pytest.mark.parametrize("impatient", [False, True])
def test_the_host_of_the_server_is_to_go(embedded, impatient):
    """It serves until the other has ended; a second signal ends it at once, and another of the host takes over."""
    job = embedded(nnodes="1:2", conf="last_call_timeout=60")
    job.start("host")
    job.until(lambda: "runs the server" in job.output("host"), "a server")
    job.start("other")
    first = job.group(["host", "other"], 2)
    job.agents["host"].send_signal(signal.SIGTERM)
    again = job.group(["other"], 1, beyond={first[0]["master"]})
    job.until(lambda: "it stays until they end" in job.output("host"), "a word of staying")
    assert job.agents["host"].poll() is None
    if impatient:
        job.agents["host"].send_signal(signal.SIGTERM)
        assert job.wait("host") == 1
        job.until(lambda: "this one serves now" in job.output("other"), "another server")
        job.group(["other"], 1, beyond={first[0]["master"], again[0]["master"]})
    job.stop_workers()
    assert job.wait_all() == {"host": 1, "other": 0}, job.report()


def test_ctrl_c_while_waiting_leaves_the_job_to_the_others(job):
    """With PyTorch's own, it closes the job for everybody (D4)."""
    job = job(nnodes="2", conf="last_call_timeout=1")
    if "rallypoint" in job.options:
        job.start("host", "--nnodes", "1", "--rdzv-id", "other")
        job.group(["host"], 1)
    job.start("a", LOGLEVEL="INFO")
    job.until(lambda: "Rendezvous'ing worker group" in job.output("a"), "a rendezvous")
    job.agents["a"].send_signal(signal.SIGINT)
    assert job.wait("a") == -signal.SIGINT
    job.start("b")
    job.start("c")
    job.group("bc", 2)
    job.stop_workers()
    assert [job.wait("b"), job.wait("c")] == [0, 0]


def test_workers_that_fail_for_good_end_the_job_everywhere(job):
    job = job(nnodes="2")
    job.start("a", deeds=["fail"])
    # It would try again, but not without the other.
    job.start("b", "--max-restarts", "9")
    assert job.wait_all() == {"a": 1, "b": 1}
    assert "RendezvousClosedError: run \"job\" was closed by" in job.output("b"), job.report()
    assert "failed for good" in job.output("b")


def test_etcd_is_started_anew_in_mid_run(tmp_path):
    """The agents go on while it is away, and end well when it is back."""
    with Etcd(tmp_path / "data") as etcd, Job(tmp_path, "etcd-v3", etcd.endpoint, nnodes="2") as job:
        for name in "ab":
            job.start(name)
        job.group("ab", 2)
        etcd.stop()
        etcd.start()
        job.stop_workers()
        assert job.wait_all() == {"a": 0, "b": 0}


@pytest.mark.parametrize(
    "conf, words",
    [
        ("lease_tll=3", 'unknown option "lease_tll" of backend "rallypoint": did you mean lease_ttl?'),
        ("user=u,password=wrong,is_host=false,timeout=5", "authentication failed"),
        ("protocol=https,cacert=/nowhere,cert=/nowhere,key=/nowhere", "/nowhere"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(embedded, conf, words):
    with rallypoint.Server(user="u", password="right") as server:
        job = embedded(conf=conf, endpoint=server.endpoint)
        job.start("a")
        assert job.wait("a") == 1
        lines = [line for line in job.output("a").splitlines() if "rallypoint.errors." in line]
        assert lines and words in lines[-1], job.output("a")


def test_the_entry_points_are_found():
    program = """
from torch.distributed.elastic.rendezvous import rendezvous_handler_registry as registry
print(sorted(registry._registry))
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert said.stdout == "['c10d', 'etcd', 'etcd-v2', 'etcd-v3', 'rallypoint', 'static']\n", said.stderr
