"""The plugin of torchrun: ``--rdzv-backend=rallypoint``, and ``etcd-v3`` for an etcd that is there already.

PyTorch finds ``creator`` by the entry points of this package. The same command on every node; the host that
``--rdzv-endpoint`` names runs the server within its torchrun, at port 29400 unless another is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters


def creator() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """What torchrun's registry asks an entry point for: a function that makes a handler."""
    return create_handler


def create_handler(params: RendezvousParameters) -> RendezvousHandler:
    """Makes a handler for these ``RendezvousParameters``. Waits for a server that is late."""
    # PyTorch is imported when it is needed, and not before.
    from rallypoint._torch_handler import TorchrunHandler

    return TorchrunHandler(params)
