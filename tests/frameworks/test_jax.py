"""JAX on two hosts, with two processes each, under `rallypoint run`."""

import os
import signal

from conftest import is_alive


def test_a_killed_worker_lets_all_start_again(launchers):
    launchers.start("--ports", "1")
    first = launchers.group(4)
    assert [one["host"] for one in first] in (["one", "one", "two", "two"], ["two", "two", "one", "one"])
    assert first[0]["coordinator"].endswith(f":{first[0]['port']}"), "it listens at the port that the launcher holds"
    # A worker that JAX's coordinator is not in.
    os.kill(first[3]["pid"], signal.SIGKILL)
    second = launchers.group(4, after=first)
    assert not any(is_alive(one) for one in first)
    assert {one["restarts"] for one in second} == {1}
    # The worker with the coordinator.
    os.kill(second[0]["pid"], signal.SIGKILL)
    third = launchers.group(4, after=second)
    assert {one["restarts"] for one in third} == {2}
    launchers.end()


def test_without_ports_the_coordinator_is_found_by_the_store(launchers):
    launchers.start()
    group = launchers.group(4)
    assert {one["port"] for one in group} == {None}
    launchers.end()
