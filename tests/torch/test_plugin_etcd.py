"""Servers of other people under stock torchrun: an etcd that goes and comes back, TLS, passwords, several endpoints."""

import time

import pytest
from agents import Job
from real_etcd import Certificates, Etcd
from servers import HOST, free_port

import rallypoint


def assert_closed_as_done(endpoint, run_id):
    """Somebody who comes later is told how it ended."""
    late = rallypoint.Rendezvous(endpoint, run_id, 1, 9, backend="etcd")
    with pytest.raises(rallypoint.RendezvousClosedError, match=r"was closed by .*done"):
        late.next_rendezvous()
    late.shutdown(success=False)


@pytest.mark.usefixtures("each_etcd")
def test_etcd_is_restarted_in_mid_run(tmp_path):
    """The workers go on while it is away. When it is back the nodes meet again, for one more, and end well."""
    conf = "last_call_timeout=1,lease_ttl=60,read_timeout=1"
    with (
        Etcd(tmp_path / "data") as etcd,
        Job(tmp_path / "job", "etcd-v3", etcd.endpoint, nnodes="2:3", conf=conf) as job,
    ):
        job.start(*"ab")
        job.group("ab")
        before = job.masters()
        etcd.stop()
        # Longer than a request may take.
        time.sleep(3)
        etcd.start()
        assert len(job.events()) == 2
        job.start("c")
        again = job.group("abc", beyond=before)
        assert {event["restarts"] for event in again} == {0}
        job.stop_workers()
        assert job.wait() == dict.fromkeys("abc", 0), job.report()
        assert_closed_as_done(etcd.endpoint, job.run_id)


def assert_two_meet(job):
    job.start(*"ab")
    job.group("ab")
    job.stop_workers()
    assert job.wait() == {"a": 0, "b": 0}, job.report()


@pytest.mark.usefixtures("each_etcd")
def test_a_second_job_without_a_name_runs_too(tmp_path):
    """`none` is what torchrun calls a job without a name. The run that is over was another job's."""
    with Etcd(tmp_path / "data") as etcd:
        for number in range(2):
            with Job(tmp_path / f"job{number}", "etcd-v3", etcd.endpoint, nnodes="2", run_id="none") as job:
                assert_two_meet(job)
                assert len(job.events(done=True)) == 2


def test_our_own_server_has_tls_and_a_password(tmp_path, jobs):
    """The host of the endpoint serves with the certificate that it is given."""
    own = Certificates(tmp_path / "own")
    conf = f"protocol=https,cacert={own.authority},cert={own.certificate},key={own.key},user=u,password=p"
    assert_two_meet(jobs(nnodes="2", conf=conf))


@pytest.mark.usefixtures("each_etcd")
def test_an_etcd_with_tls_and_a_password_of_which_one_server_is_down(tmp_path):
    own = Certificates(tmp_path / "own")
    with Etcd(tmp_path / "data", own) as etcd:
        etcd.demand_password("u", "p")
        endpoint = f"{HOST}:{free_port()},{etcd.endpoint}"
        conf = f"protocol=https,cacert={own.authority},user=u,password=p"
        with Job(tmp_path / "job", "etcd-v3", endpoint, nnodes="2", conf=conf) as job:
            assert_two_meet(job)
