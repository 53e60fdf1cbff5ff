"""Whole jobs on our store: a gloo group of four processes, and PyTorch's own rendezvous."""

import json
import os
import pathlib
import subprocess
import sys

from observe import together
from servers import HOST, PATIENCE, AgentStore
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    DynamicRendezvousHandler,
    RendezvousTimeout,
)

JOB = pathlib.Path(__file__).with_name("gloo_job.py")


def run_job(world_size, ports):
    """Starts a process for each rank, in the environment torchrun would give it. Returns what each printed."""
    ranks = []
    try:
        for rank in range(world_size):
            environment = {
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(world_size),
                "MASTER_ADDR": HOST,
                # Only the agent serves: a rank that tried would find its port taken.
                "TORCHELASTIC_USE_AGENT_STORE": "True",
                "GLOO_SOCKET_IFNAME": "lo",
            }
            command = [sys.executable, JOB, *map(str, ports)]
            ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        finished = [rank.communicate(timeout=PATIENCE.total_seconds()) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    for rank, (_, complaints) in zip(ranks, finished):
        assert rank.returncode == 0, complaints.decode()
    return [[json.loads(line) for line in output.splitlines()] for output, _ in finished]


def test_a_gloo_job_of_four_in_two_rounds():
    """A new store for each round, as after a restart: no round finds the addresses of the one before."""
    with AgentStore() as first, AgentStore() as second:
        results = run_job(4, [first.port, second.port])
        keys = [sorted(server.connect().list_keys()) for server in (first, second)]
    for rank, rounds in enumerate(results):
        expected = {
            "all_reduce": 1.0 + 2.0 + 3.0 + 4.0,
            "new_group": 0.0 + 2.0 if rank % 2 == 0 else float(rank),
            "all_gather_object": [0, 1, 2, 3],
            "broadcast_object_list": ["from 0", {"deep": [1, 2]}],
        }
        assert rounds == [expected, expected]
    # The ranks met in our store and nowhere else.
    for held in keys:
        assert [key for key in held if key.startswith("default_pg/0//cpu//0/")], held


def test_pytorchs_own_rendezvous(ours, monkeypatch):
    """Three nodes meet with PyTorch's c10d backend, whose state is one key that they compare and set."""
    # Its rank 0 would serve a store of its own, and on every address of the machine.
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    nodes = 3

    def handler():
        store = ours.connect()
        backend = C10dRendezvousBackend(store, "run")
        timeout = RendezvousTimeout(PATIENCE, PATIENCE, PATIENCE)
        return DynamicRendezvousHandler.from_backend("run", store, backend, nodes, nodes, HOST, timeout)

    def meet(handler):
        info = handler.next_rendezvous()
        info.store.barrier("met", info.world_size, PATIENCE)
        return info.rank, info.world_size, info.store.add("here", 1)

    handlers = [handler() for _ in range(nodes)]
    try:
        met = together(*(lambda handler=handler: meet(handler) for handler in handlers))
        assert [sorted(column) for column in zip(*met)] == [[0, 1, 2], [3, 3, 3], [1, 2, 3]]
    finally:
        ended = [handler.shutdown() for handler in handlers]
    assert ended == [True] * nodes
    assert handlers[1].is_closed()
