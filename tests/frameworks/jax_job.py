"""A job of JAX: a psum over all processes, again and again, until a file tells it to end.

Each process writes what it sees to `seen-<round>-<rank>`, in the directory that it is started in.
"""

import json
import os
import pathlib
import socket
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import rallypoint.jax

rallypoint.jax.initialize(initialization_timeout=60)
rank = int(os.environ["RANK"])
mesh = Mesh(np.array(jax.devices()), ("processes",))
own = NamedSharding(mesh, PartitionSpec("processes"))
add = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "processes"), mesh=mesh, in_specs=PartitionSpec("processes"),
                            out_specs=PartitionSpec()))  # fmt: skip


def summed(value):
    """The sum of what all processes give."""
    whole = jax.make_array_from_single_device_arrays((jax.process_count(),), own, [jnp.array([float(value)])])
    return int(add(whole)[0])


while True:
    seen = {
        "sum": summed(10 ** jax.process_index()),
        "processes": jax.process_count(),
        "id": jax.process_index(),
        "local": len(jax.local_devices()),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "round": int(os.environ["RALLYPOINT_ROUND"]),
        "restarts": int(os.environ["TORCHELASTIC_RESTART_COUNT"]),
        "coordinator": jax._src.distributed.global_state.coordinator_address,
        "port": os.environ.get("RALLYPOINT_PORT_0"),
    }
    file = pathlib.Path(f".seen-{seen['round']}-{rank}")
    file.write_text(json.dumps(seen))
    file.rename(file.name[1:])
    # All processes end together, so that none waits for one that has ended.
    if summed(pathlib.Path("go").exists()):
        break
    time.sleep(0.05)
