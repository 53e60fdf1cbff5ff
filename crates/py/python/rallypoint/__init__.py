"""Elastic rendezvous for distributed training.

The nodes of a job meet: they agree who is in, who has which rank, where rank 0 listens; and they meet again
when a node dies or a new one comes.

- With stock PyTorch there is nothing to write: ``torchrun --rdzv-backend=rallypoint --rdzv-endpoint=head …``.
- ``Rendezvous``: the same for any Python program, without PyTorch.
- ``EtcdStore``, ``TcpStore``: what the nodes of a group share.
- ``Server``: the coordination server; ``EtcdServer``: a real etcd, as a child process.
- ``beat``: a worker of ``rallypoint run --hang-after`` shows that it makes progress.
- ``rallypoint.jax``: ``initialize()``, for JAX in the workers of a launcher.
- ``rallypoint.torch``: stores and a rendezvous backend for PyTorch, in place of those that speak etcd's v2.

A call that waits lets other threads run, and ends at Ctrl-C if it is in the main thread. In ``asyncio``, use
``asyncio.to_thread``, within the block of a ``with``, whose end also ends what still waits.

A process that was forked while any of this was in use can use none of it (``ForkError``), and ends nothing of its
parent's. But it holds what the parent had open until it ends or runs another program: if the parent is killed
meanwhile, its port stays taken, and the other nodes miss it only when its lease expires. Start processes that are
to outlive their parent with ``subprocess``, or by the methods ``spawn`` and ``forkserver``.

What it does is logged under the name ``rallypoint``. For DEBUG, set the level before the first use.
"""

from rallypoint import _helper, errors
from rallypoint._native import (
    VERSION,
    Client,
    EtcdServer,
    EtcdStore,
    Rendezvous,
    RendezvousInfo,
    Server,
    Store,
    TcpStore,
)
from rallypoint._progress import beat
from rallypoint.errors import *  # noqa: F403

__version__ = VERSION

_helper.register()

__all__ = [
    "Client",
    "EtcdServer",
    "EtcdStore",
    "Rendezvous",
    "RendezvousInfo",
    "Server",
    "Store",
    "TcpStore",
    "beat",
    *errors.__all__,
]
