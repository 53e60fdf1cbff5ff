"""What JAX is told by `rallypoint.jax`. tests/frameworks has JAX itself."""

import pytest

import rallypoint
import rallypoint.jax

WORKER = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "node7",
    "MASTER_PORT": "29500",
    "RALLYPOINT_PORT_0": "40001",
    "RALLYPOINT_PORT_1": "40002",
    # srun's, of the launcher.
    "SLURM_PROCID": "1",
    "SLURM_NTASKS": "2",
}


@pytest.fixture
def worker(monkeypatch):
    for name, value in WORKER.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_the_arguments_are_those_of_the_worker(worker):
    expected = {
        "coordinator_address": "node7:40001",
        "num_processes": 8,
        "process_id": 5,
        "local_device_ids": [1],
        "cluster_detection_method": "deactivate",
    }
    assert rallypoint.jax.arguments() == expected
    assert rallypoint.jax.arguments([2, 3], port=1) == {
        **expected,
        "coordinator_address": "node7:40002",
        "local_device_ids": [2, 3],
    }
    worker.setenv("MASTER_ADDR", "fd00::7")
    assert rallypoint.jax.arguments()["coordinator_address"] == "[fd00::7]:40001"


def test_a_single_worker_has_all_devices(worker):
    worker.setenv("LOCAL_WORLD_SIZE", "1")
    assert rallypoint.jax.arguments()["local_device_ids"] is None
    worker.setenv("LOCAL_WORLD_SIZE", "4")
    worker.setenv("JAX_LOCAL_DEVICE_IDS", "0,1")
    assert rallypoint.jax.arguments()["local_device_ids"] is None, "JAX reads the variable"


def test_what_is_missing_is_named(worker):
    worker.delenv("RALLYPOINT_PORT_1")
    with pytest.raises(rallypoint.ParameterError, match="RALLYPOINT_PORT_1: it is not set; give .* --ports 2"):
        rallypoint.jax.arguments(port=1)
    worker.setenv("RANK", "first")
    with pytest.raises(ValueError, match="RANK 'first': it should be a whole number"):
        rallypoint.jax.arguments()
    worker.delenv("RANK")
    with pytest.raises(rallypoint.ParameterError, match="RANK: it is not set, so this process is no worker"):
        rallypoint.jax.arguments()
