"""Stock torchrun as a process, and what its workers write down."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

from servers import HOST, PATIENCE

JOB = pathlib.Path(__file__).with_name("plugin_job.py")


def free_port():
    with socket.create_server((HOST, 0)) as listener:
        return listener.getsockname()[1]


class Job:
    """The agents of one job, their output, and what their workers wrote down. Nothing is left of it at the end."""

    def __init__(self, directory, backend="rallypoint", endpoint=None, nnodes="1", nproc=1, conf=""):
        self.directory = directory
        self.endpoint = endpoint or f"{HOST}:{free_port()}"
        self.options = [
            "--rdzv-backend", backend, "--rdzv-endpoint", self.endpoint, "--rdzv-id", "job",
            "--nnodes", nnodes, "--nproc-per-node", str(nproc), "--rdzv-conf", conf or "last_call_timeout=1",
            "--log-dir", str(directory / "logs"),
        ]  # fmt: skip
        self.agents = {}

    def start(self, name, *options, deeds=(), **environment):
        """Starts an agent. Later options overrule those of the job."""
        command = [sys.executable, "-m", "torch.distributed.run", *self.options, *options]
        command += [str(JOB), str(self.directory), name, *deeds]
        surroundings = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", **environment}
        with open(self.directory / f"{name}.out", "ab") as output:
            agent = subprocess.Popen(command, stdout=output, stderr=output, env=surroundings)
        self.agents[name] = agent
        return agent

    def events(self, **like):
        with contextlib.suppress(FileNotFoundError):
            events = map(json.loads, (self.directory / "events").read_text().splitlines())
            return [event for event in events if like.items() <= event.items()]
        return []

    def output(self, name):
        return (self.directory / f"{name}.out").read_text(errors="replace")

    def until(self, condition, what="it"):
        """Waits for what ``condition`` finds, and returns it."""
        deadline = time.monotonic() + PATIENCE.total_seconds()
        while True:
            found = condition()
            if found:
                return found
            assert time.monotonic() < deadline, f"{what} did not come about\n{self.report()}"
            time.sleep(0.05)

    def group(self, agents, size, beyond=()):
        """Waits until workers of all these agents are in a group of ``size`` whose master is not one of
        ``beyond``, and returns what they wrote down."""

        def formed():
            by_master = {}
            for event in self.events(world=size):
                by_master.setdefault(event["master"], []).append(event)
            for master, members in by_master.items():
                if master not in beyond and len(members) == size and {one["agent"] for one in members} == set(agents):
                    return members
            return None

        return self.until(formed, f"a group of {size} with {agents}")

    def kill(self, member):
        """Ends an agent and its worker as a machine that fails would."""
        self.agents[member["agent"]].kill()
        os.kill(member["pid"], signal.SIGKILL)

    def stop_workers(self):
        (self.directory / "stop").touch()

    def wait(self, name):
        try:
            return self.agents[name].wait(PATIENCE.total_seconds())
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{name} did not end\n{self.report()}") from None

    def wait_all(self):
        return {name: self.wait(name) for name in self.agents}

    def report(self):
        return "\n".join(f"--- {name}:\n{self.output(name)[-5000:]}" for name in self.agents)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for agent in self.agents.values():
            agent.kill()
            agent.wait()
        for pid in {event["pid"] for event in self.events()}:
            # Each worker has a session of its own, and outlives an agent that is killed.
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                if JOB.name in pathlib.Path(f"/proc/{pid}/cmdline").read_text():
                    os.kill(pid, signal.SIGKILL)
