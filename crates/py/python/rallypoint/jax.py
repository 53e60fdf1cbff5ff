"""JAX in the workers of ``rallypoint run``, and of torchrun with the plugin.

>>> rallypoint.jax.initialize()  # doctest: +SKIP
>>> jax.process_count()  # doctest: +SKIP
8

The values come from the variables that the launcher sets for each worker. JAX's own detection would take those of the
scheduler instead: under ``srun`` one process for each launcher, all with the launcher's rank.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any

import rallypoint

__all__ = ["arguments", "initialize"]

_KEY = "rallypoint/jax/coordinator"


def initialize(local_device_ids: int | Sequence[int] | None = None, *, port: int = 0, **options: Any) -> None:
    """Calls ``jax.distributed.initialize`` with what the launcher has decided for this round.

    Call it once, before anything else of JAX. A restarted worker is a new process, and calls it again.

    Args:
        local_device_ids: the devices of this process. Unless given, all devices of the host for a single worker, and
            otherwise the one whose number is ``LOCAL_RANK``.
        port: the number of the port for JAX's coordinator, among those of ``rallypoint run --ports``.
        options: further arguments of ``jax.distributed.initialize``.

    Raises:
        rallypoint.ParameterError: this process is no worker of a launcher, or has no port for the coordinator.
    """
    import jax

    # JAX takes SIGTERM for a notice of preemption, and would not end when the launcher stops this worker. A JAX without
    # the option has no such service.
    if hasattr(jax.config, "jax_enable_preemption_service"):
        jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(**{**arguments(local_device_ids, port=port), **options})


def arguments(local_device_ids: int | Sequence[int] | None = None, *, port: int = 0) -> dict[str, Any]:
    """The arguments for ``jax.distributed.initialize``: see ``initialize``. Needs no JAX."""
    rank, world_size = _number("RANK"), _number("WORLD_SIZE")
    host = _text("MASTER_ADDR")
    address = f"[{host}]" if ":" in host else host
    if local_device_ids is None and _number("LOCAL_WORLD_SIZE") > 1 and not os.environ.get("JAX_LOCAL_DEVICE_IDS"):
        local_device_ids = [_number("LOCAL_RANK")]
    return {
        "coordinator_address": f"{address}:{_port(port, rank)}",
        "num_processes": world_size,
        "process_id": rank,
        "local_device_ids": local_device_ids,
        # The scheduler started the launcher, not this process.
        "cluster_detection_method": "deactivate",
    }


def _port(number: int, rank: int) -> int:
    """The port of the coordinator: one that the launcher holds, or else a free one of rank 0's host, by the store."""
    name = f"RALLYPOINT_PORT_{number}"
    if os.environ.get(name):
        return _number(name)
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        raise rallypoint.ParameterError(f"{name}: it is not set; give rallypoint run --ports {number + 1}")
    store = rallypoint.TcpStore(_text("MASTER_ADDR"), _number("MASTER_PORT"))
    key = f"{_KEY}/{number}/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '')}"
    if rank == 0:
        with socket.socket() as free:
            free.bind(("", 0))
            store.set(key, str(free.getsockname()[1]))
    return int(store.get(key))


def _text(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        fix = "start this program by `rallypoint run --ports 1`"
        raise rallypoint.ParameterError(f"{name}: it is not set, so this process is no worker of a launcher; {fix}")
    return value


def _number(name: str) -> int:
    value = _text(name)
    try:
        return int(value)
    except ValueError:
        raise rallypoint.ParameterError(f"{name} {value!r}: it should be a whole number") from None
