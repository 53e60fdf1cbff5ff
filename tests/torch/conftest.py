"""What every test here is made of: a scenario that is played against stock PyTorch's server and against ours."""

import contextlib
import functools
import itertools
import os
import resource
import signal
import tempfile
import uuid

# Read when PyTorch is imported: its complaints about time-outs and closed connections are what is tested.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A stock client looks up the name of each address it connects to, if only for its log. Where the name server
# takes its time that would be most of a test's.
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")

import pytest
from agents import Job
from etcds import each_etcd, etcds, on_each, parted, pytest_generate_tests  # noqa: F401  Fixtures and a hook, too.
from servers import HOST, AgentStore, StockServer, StockServerProcess

# What a test run inherited as ignored (`nohup`, a shell's `&`), its children would ignore too.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def temporary_files():
    """A server in memory that is killed leaves a note for the next one, and a launcher that is killed its logs. Both
    are in a directory that goes with the tests."""
    with tempfile.TemporaryDirectory(prefix="rallypoint-tests-") as directory, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", directory)
        # This process knows by now where they would have been.
        patch.setattr(tempfile, "tempdir", directory)
        patch.delenv("XDG_RUNTIME_DIR", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def descriptors():
    """Hundreds of clients, and one of the two servers, live in this process."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@pytest.fixture
def ours():
    with AgentStore() as server:
        yield server


@pytest.fixture
def stock():
    with StockServer() as server:
        yield server


@pytest.fixture
def both(stock, ours):
    """Plays a scenario against both servers. What it observes must be the same, and is returned."""

    def play(scenario):
        expected = scenario(stock)
        observed = scenario(ours)
        assert observed == expected, "ours (left) is not as stock (right)"
        return observed

    return play


@pytest.fixture
def jobs(tmp_path):
    """Makes jobs under stock torchrun, by default with our own server and nothing else started."""
    names = (tmp_path / f"job{number}" for number in itertools.count())
    with contextlib.ExitStack() as stack:
        yield lambda *arguments, **options: stack.enter_context(Job(next(names), *arguments, **options))


@pytest.fixture(params=["rallypoint", *on_each("etcd-v3")])
def job(request, jobs):
    """Makes a job: with nothing else started, and on a real etcd."""
    where = {}
    backend, version = parted(request.param)
    if backend == "etcd-v3":
        etcd = request.getfixturevalue("etcds")(version)
        where = {"endpoint": etcd.get_endpoint(), "run_id": f"job-{uuid.uuid4().hex}"}
    return functools.partial(jobs, backend, **where)


@pytest.fixture(scope="session")
def c10d(tmp_path_factory):
    """Makes jobs with PyTorch's own backend, which meet at a server that outlives their agents."""
    with StockServerProcess() as server:

        def make(conf="last_call_timeout=1", **options):
            return Job(
                tmp_path_factory.mktemp("stock"), "c10d", f"{HOST}:{server.port}", conf=f"is_host=false,{conf}",
                run_id=f"job-{uuid.uuid4().hex}", **options,
            )  # fmt: skip

        yield make
