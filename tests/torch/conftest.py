"""What every test here is made of: a scenario that is played against stock PyTorch's server and against ours."""

import os
import resource

# Read when PyTorch is imported: its complaints about time-outs and closed connections are what is tested.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A stock client looks up the name of each address it connects to, if only for its log. Where the name server
# takes its time that would be most of a test's.
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")

import pytest
from servers import AgentStore, StockServer


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
