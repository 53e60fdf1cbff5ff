"""Stock torchrun as processes, and what its workers write down."""

import contextlib
import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import warnings

from servers import HOST, PATIENCE, free_port

WORKER = pathlib.Path(__file__).with_name("plugin_job.py")
TORCHRUN = [str(pathlib.Path(sys.executable).with_name("torchrun"))]
PR_SET_PDEATHSIG = 1

SECONDS = PATIENCE.total_seconds()

# With a lease that is longer than anybody waits here, so that it is not the lease that tells who is dead.
NO_LEASE = "last_call_timeout=1,lease_ttl=600"

# In the environment of every process of a job, and says of which.
MARK = "PLUGIN_TEST_JOB"


def die_with_parent():
    """A run of tests that is killed takes its agents with it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def lives(pid):
    """Whether a process is there, and not only its exit code."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def until(condition, what, report=lambda: "", seconds=SECONDS):
    """Waits for what ``condition`` finds, and returns it."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"{what} did not come about\n{report()}"
        time.sleep(0.02)


@contextlib.contextmanager
def observing_stock():
    """What PyTorch's own does is looked at, for comparison. If it is late, or another than it was, that is said and
    nothing of ours fails for it."""
    try:
        yield
    except AssertionError as error:
        # The first frame is the one above.
        where = error.__traceback__.tb_next.tb_frame.f_code.co_name
        what = str(error).partition("\n")[0]
        warnings.warn(f"PyTorch's own did not do as expected in {where}: {what}", stacklevel=3)


class Job:
    """The agents of one job, their output, and what their workers wrote down. Nothing is left of it at the end."""

    def __init__(self, directory, backend="rallypoint", endpoint=None, nnodes="1", nproc=1, conf="", run_id="job"):
        self.directory = directory
        self.temporary = directory / "tmp"
        self.temporary.mkdir(parents=True)
        self.backend = backend
        self.endpoint = endpoint or f"{HOST}:{free_port()}"
        self.run_id = run_id
        self.options = [
            "--rdzv-backend", backend, "--rdzv-endpoint", self.endpoint, "--rdzv-id", run_id, "--nnodes", nnodes,
            "--nproc-per-node", str(nproc), "--rdzv-conf", conf or "last_call_timeout=1", "--max-restarts", "3",
        ]  # fmt: skip
        self.agents = {}

    def start(self, *names, options=(), deeds=(), program=TORCHRUN, by=(), **environment):
        """Starts agents, ``by`` a program that becomes them. Their options overrule those of the job."""
        surroundings = {
            **os.environ, MARK: str(self.directory), "TMPDIR": str(self.temporary), "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1", **environment,
        }  # fmt: skip
        for name in names:
            command = [*by, sys.executable, *program, *self.options, *options]
            command += [str(WORKER), str(self.directory), name, *deeds]
            with open(self.directory / f"{name}.out", "ab") as output:
                self.agents[name] = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=surroundings,
                    preexec_fn=die_with_parent,
                )  # fmt: skip

    def start_host(self, name, **how):
        """Starts an agent that serves, if any of this job does; the others will not."""
        self.start(name, **how)
        if self.backend == "rallypoint":
            self.said(name, "this process runs the server")

    def events(self, **like):
        """What the workers wrote down, oldest first."""
        with contextlib.suppress(FileNotFoundError):
            events = map(json.loads, (self.directory / "events").read_text().splitlines())
            return [event for event in events if like.items() <= event.items()]
        return []

    def masters(self):
        """Those of all groups so far."""
        return {event["master"] for event in self.events() if "master" in event}

    def output(self, name):
        return (self.directory / f"{name}.out").read_text(errors="replace")

    def until(self, condition, what, **options):
        return until(condition, what, self.report, **options)

    def said(self, name, words):
        """Waits until an agent has said this."""
        self.until(lambda: words in self.output(name), f"{words!r} of {name}")

    def group(self, agents, size=None, beyond=()):
        """Waits until workers of all these agents, and no others, are in a group whose master is not one of those
        ``beyond``, and returns what they wrote down."""
        size = size or len(agents)

        def formed():
            by_master = {}
            for event in self.events(world=size):
                by_master.setdefault(event["master"], []).append(event)
            for master, members in by_master.items():
                if master not in beyond and len(members) == size and {one["agent"] for one in members} == set(agents):
                    return members
            return None

        return self.until(formed, f"a group of {size} with {sorted(agents)}")

    def kill(self, name):
        """Ends an agent, and with it its workers, as a machine that fails would."""
        self.agents[name].kill()
        self.agents[name].wait()

    def signal(self, name, number):
        self.agents[name].send_signal(number)

    def fail_worker(self, name, killing=()):
        """Makes a worker of this agent fail, once. Before that it kills some processes."""
        instruction = self.directory / "instruction"
        instruction.write_text(json.dumps(list(killing)))
        instruction.rename(self.directory / f"fail-{name}")

    def stop_workers(self, name=None):
        """The workers end well, those of later groups too; all of them, or those of one agent."""
        (self.directory / (f"stop-{name}" if name else "stop")).touch()

    def wait(self, *names):
        """How these agents ended; all of them, unless told otherwise."""
        codes = {}
        for name in names or self.agents:
            self.until(lambda: self.agents[name].poll() is not None, f"the end of {name}")
            codes[name] = self.agents[name].returncode
        return codes

    def report(self):
        return "\n".join(f"--- {name}:\n{self.output(name)[-5000:]}" for name in self.agents)

    def processes(self):
        """The processes that are left of this job, whichever process started them."""
        mine = f"{MARK}={self.directory}".encode()
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mine in (process / "environ").read_bytes().split(b"\0"):
                    found.append(int(process.name))
        return found

    def __enter__(self):
        return self

    def __exit__(self, failed, *_):
        for agent in self.agents.values():
            agent.kill()
        for agent in self.agents.values():
            agent.wait()
        with contextlib.suppress(AssertionError):
            until(lambda: not self.processes(), "the end of the workers", seconds=0 if failed else 5)
        left = self.processes()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert failed or not left, f"processes {left} were left\n{self.report()}"
