"""What other versions of PyTorch do differently. `TORCH=2.6.0 make test-torch` runs on one of them."""

import pytest
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.rendezvous import RendezvousParameters

import rallypoint
from rallypoint.torchrun import create_handler


def test_an_agent_that_shuts_down_before_its_launcher_knows_why():
    """In PyTorch 2.6 and 2.7 it does; a job whose workers failed would be closed as one that is done."""
    agent = {"__name__": LocalElasticAgent.__module__}
    exec("def shut_down(handler): return handler.shutdown()", agent)
    with rallypoint.Server() as server, rallypoint.Rendezvous(server.endpoint, "run", 1, 1, backend="etcd") as other:
        handler = create_handler(RendezvousParameters("etcd-v3", server.endpoint, "run", 1, 1, timeout=60))
        handler.next_rendezvous()
        assert agent["shut_down"](handler) and not other.is_closed()
        assert handler.shutdown() and other.is_closed()
        with pytest.raises(rallypoint.RendezvousClosedError):
            other.next_rendezvous()
