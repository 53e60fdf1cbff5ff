"""Health, readiness and metrics of torchrun's nodes over HTTP."""

import urllib.error
import urllib.request

from servers import HOST, free_port


def get(port, page):
    """The status and the text of a page."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/{page}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def start(job, name):
    """Starts an agent with pages, and returns their port."""
    port = free_port()
    job.start(name, options=["--rdzv-conf", f"last_call_timeout=1,http={HOST}:{port}"])
    return port


def sample(line):
    """A line of the metrics, whatever the order of its labels."""
    name, _, rest = line.partition("{")
    labels, _, value = rest.rpartition("} ")
    return name, frozenset(labels.split(",")), value


def has(port, *lines):
    """Whether the metrics have these lines."""
    status, text = get(port, "metrics")
    assert status == 200
    return set(map(sample, lines)) <= set(map(sample, text.splitlines()))


def test_a_node_tells_health_and_metrics(jobs):
    job = jobs(nnodes="2")
    a = start(job, "a")
    job.said("a", "waiting: 1 of 2 nodes")
    assert get(a, "healthz")[0] == 200
    status, text = get(a, "readyz")
    assert status == 503 and "1 of 2 nodes" in text, text
    b = start(job, "b")
    members = job.group("ab")
    for port in (a, b):
        job.until(lambda port=port: get(port, "readyz")[0] == 200, "a member")
        assert has(
            port,
            'rallypoint_run_state{run="job",state="final"} 1',
            'rallypoint_node_state{run="job",state="member"} 1',
            'rallypoint_nodes_wanted{bound="max",run="job"} 2',
            'rallypoint_rounds_total{reason="begin",run="job"} 1',
            'rallypoint_lease_ttl_seconds{run="job"} 10',
        ), get(port, "metrics")[1]
        # torchrun does not say how many there are.
        assert "rallypoint_restarts" not in get(port, "metrics")[1]
    job.fail_worker("b")
    job.group("ab", beyond={members[0]["master"]})
    failed = 'rallypoint_rounds_total{reason="worker_failed",run="job"} 1'
    exited = 'rallypoint_worker_exits_total{code="7",run="job"} 1'
    recovered = 'rallypoint_recovery_seconds_count{reason="worker_failed",run="job"} 1'
    stopped = 'rallypoint_stage_seconds_count{run="job",stage="stop"} 1'
    job.until(lambda: has(b, failed, exited, recovered, stopped), "metrics of a failure", seconds=20)
    job.stop_workers()
    assert job.wait() == {"a": 0, "b": 0}, job.report()


def test_an_address_that_makes_no_sense_is_named(jobs):
    job = jobs(conf="http=nowhere")
    job.start("a")
    assert job.wait() == {"a": 1}
    line = job.output("a").splitlines()[-1]
    assert line.startswith('rallypoint.errors.ParameterError: http "nowhere": give an IP address and a port'), line
