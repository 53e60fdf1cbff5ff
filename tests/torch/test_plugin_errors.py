"""What is wrong is said in one line under stock torchrun: the last, below PyTorch's traceback."""

import pathlib

import pytest
from agents import observing_stock
from etcds import ETCDS, on_each, parted
from real_etcd import Certificates, Etcd

import rallypoint


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Of two authorities that do not know each other."""
    directory = tmp_path_factory.mktemp("certificates")
    return Certificates(directory / "ours"), Certificates(directory / "theirs")


def last_line(job):
    """What the user of an agent sees last. The agent fails."""
    job.start("a")
    assert job.wait("a") == {"a": 1}
    return job.output("a").splitlines()[-1]


@pytest.fixture(scope="module")
def unknown_option_of_stock(c10d):
    """It ignores it."""
    with observing_stock(), c10d("lease_tll=3") as job:
        job.stop_workers()
        job.start("a")
        assert job.wait() == {"a": 0}


@pytest.mark.usefixtures("unknown_option_of_stock")
@pytest.mark.parametrize("backend", ["rallypoint", "etcd-v3"])
def test_an_unknown_option(jobs, backend):
    line = last_line(jobs(backend, conf="lease_tll=3"))
    assert line.startswith("rallypoint.errors.ParameterError: "), line
    assert 'unknown option "lease_tll"' in line and "did you mean lease_ttl?" in line


@pytest.mark.parametrize("arm", ["rallypoint", *on_each("etcd-v3")])
def test_a_wrong_password(jobs, tmp_path, arm):
    backend, version = parted(arm)
    if backend == "rallypoint":
        protected = rallypoint.Server(user="u", password="right")
    else:
        protected = Etcd(tmp_path / "data", program=ETCDS[version])
    with protected as server:
        if backend == "etcd-v3":
            server.demand_password("u", "right")
        line = last_line(jobs(backend, server.endpoint, conf="user=u,password=wrong"))
    assert line.startswith("rallypoint.errors.RendezvousConnectionError: "), line
    assert server.endpoint in line and "authentication failed" in line and "password" in line


@pytest.mark.parametrize("backend", ["rallypoint", "etcd-v3"])
def test_a_certificate_of_another_authority(jobs, certificates, backend):
    ours, theirs = certificates
    with rallypoint.Server(cert=theirs.certificate, key=theirs.key) as server:
        conf = f"protocol=https,cacert={ours.authority}"
        line = last_line(jobs(backend, server.endpoint, conf=conf + ",is_host=false" * (backend == "rallypoint")))
    assert line.startswith("rallypoint.errors.RendezvousConnectionError: "), line
    assert server.endpoint in line and "the server's certificate is not signed by the given CA" in line


def test_a_node_without_the_secret_of_other_nodes(jobs):
    """The server asks for it, and the workers do not see it."""
    job = jobs(nnodes="2")
    job.start_host("b", RALLYPOINT_SECRET="sesame")
    job.start("c", RALLYPOINT_SECRET="sesame")
    for worker in job.group("bc"):
        environment = pathlib.Path(f"/proc/{worker['pid']}/environ").read_bytes()
        assert b"TORCHELASTIC_RUN_ID=" in environment and b"SECRET" not in environment
    line = last_line(job)
    assert line.startswith("rallypoint.errors.RendezvousConnectionError: "), line
    assert job.endpoint in line, line
    assert "none is set; give all nodes of the job the same, by RALLYPOINT_SECRET" in line, line
    job.stop_workers()
    assert job.wait("b", "c") == {"b": 0, "c": 0}, job.report()


@pytest.mark.parametrize("backend", ["rallypoint", "etcd-v3"])
def test_a_password_appears_in_no_output_or_command_line(jobs, tmp_path, backend):
    """It is in a file, or in a variable that workers do not have."""
    (tmp_path / "password").write_text("sesame\n")
    with rallypoint.Server(user="ali", password="sesame") as server:
        job = jobs(backend, server.endpoint, nnodes="2", conf=f"user=ali,password_file={tmp_path / 'password'}")
        job.start("a")
        job.start("b", options=["--rdzv-conf", "user=ali"], RALLYPOINT_PASSWORD="sesame")
        for worker in job.group("ab"):
            environment = pathlib.Path(f"/proc/{worker['pid']}/environ").read_bytes()
            assert b"TORCHELASTIC_RUN_ID=" in environment and b"sesame" not in environment
        job.stop_workers()
        assert job.wait() == {"a": 0, "b": 0}, job.report()
    assert "sesame" not in job.report()


def test_a_certificate_that_is_not_there(jobs):
    line = last_line(jobs(conf="protocol=https,cacert=/nowhere/ca.pem,is_host=false"))
    assert line.startswith("rallypoint.errors.") and "/nowhere/ca.pem" in line, line
