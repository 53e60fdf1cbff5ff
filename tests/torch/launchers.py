"""Jobs under a launcher, ours or torchrun, as processes on loopback.

A `Job` is a context manager: when its block ends, its launchers are gone, and so is every worker of them.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
import uuid

from servers import HOST, PATIENCE, ROOT, TARGET, free_port

EXAMPLE = ROOT / "examples" / "train.py"


class Stock:
    """torchrun."""

    name = "stock"
    # As users start it. Under `python -m` it is slower, because PyTorch looks up the file of every function that logs.
    command = [pathlib.Path(sys.executable).with_name("torchrun")]

    def meeting(self, nodes, port, run_id, host):
        return ["--nnodes", nodes, "--rdzv-backend", "c10d", "--rdzv-id", run_id, "--rdzv-endpoint", f"{HOST}:{port}",
                "--rdzv-conf", f"is_host={int(host)}", "--local-addr", HOST]  # fmt: skip


class Ours:
    """`rallypoint run`."""

    name = "ours"

    def __init__(self, profile="debug", **options):
        """`options` are those of the rendezvous."""
        program = TARGET / profile / "rallypoint"
        if not program.exists():
            raise FileNotFoundError(f"{program} is not built; `make test-torch` and `make bench-launcher` do it")
        self.command = [program, "run"]
        self.options = "".join(f",{name}={value}" for name, value in options.items())

    def meeting(self, nodes, port, run_id, host):
        return ["--nnodes", nodes, "--rdzv-id", run_id, "--rdzv-endpoint", f"{HOST}:{port}",
                "--rdzv-conf", f"is_host={str(host).lower()}{self.options}", "--local-addr", HOST]  # fmt: skip


class Launcher:
    """One of the launchers of a job. What it and its workers say is in a file, since nobody reads it in time."""

    def __init__(self, command, output, environment):
        self.output = output
        with open(output, "wb") as file:
            self.process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
            )

    def said(self):
        return self.output.read_text(errors="replace")

    def exit_code(self):
        """Waits for it."""
        return self.process.wait(PATIENCE.total_seconds())

    def kill(self):
        """As a machine that fails would."""
        self.process.kill()
        self.process.wait()


class Job:
    """Some launchers of one kind that meet each other, or what `meeting` says in their options instead."""

    def __init__(self, kind, directory, nodes=1, meeting=None):
        self.kind, self.directory, self.nodes, self.meeting = kind, directory, nodes, meeting
        self.run_id = f"test-{uuid.uuid4().hex[:12]}"
        self.launchers = []
        self.port = free_port()

    def start(self, *arguments, host=None, by=(), **environment):
        """One more launcher, ``by`` a program that becomes it. The first one hosts what they meet at, unless told
        otherwise. A variable that is None is not there."""
        number = len(self.launchers)
        host = number == 0 if host is None else host
        meeting = self.meeting or self.kind.meeting(str(self.nodes), self.port, self.run_id, host)
        temporary = self.directory / "tmp"
        temporary.mkdir(exist_ok=True)
        variables = {
            **os.environ, "TMPDIR": str(temporary), "PYTHON_EXEC": sys.executable, "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo", "LC_ALL": "C.UTF-8", **environment,
        }  # fmt: skip
        variables = {name: value for name, value in variables.items() if value is not None}
        command = [*by, *self.kind.command, *meeting, *map(str, arguments)]
        launcher = Launcher(command, self.directory / f"{self.kind.name}-{number}.log", variables)
        self.launchers.append(launcher)
        return launcher

    def workers(self):
        """The processes of the workers, by rank. A process knows by its environment what it is."""
        mine = f"TORCHELASTIC_RUN_ID={self.run_id}".encode()
        found = {}
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                environment = (process / "environ").read_bytes().split(b"\0")
            except OSError:
                continue  # Gone meanwhile, or not ours to look at.
            if mine in environment:
                rank = next(name[5:] for name in environment if name.startswith(b"RANK="))
                found[int(rank)] = int(process.name)
        return found

    def launcher_of(self, rank):
        """The launcher that started the worker of that rank."""
        with open(f"/proc/{self.workers()[rank]}/stat") as stat:
            parent = int(stat.read().rpartition(")")[2].split()[1])
        return next(launcher for launcher in self.launchers if launcher.process.pid == parent)

    def exit_codes(self):
        return [launcher.exit_code() for launcher in self.launchers]

    def said(self):
        """Everything, to be shown by a test that fails."""
        return "\n".join(f"--- {launcher.output.name}\n{launcher.said()}" for launcher in self.launchers)

    def wait_for(self, what, condition):
        """Waits until the condition is more than nothing, and returns it. A job that ends before is a failure."""
        end = time.monotonic() + PATIENCE.total_seconds()
        while True:
            ended = all(launcher.process.poll() is not None for launcher in self.launchers)
            if result := condition():
                return result
            assert not ended, f"the job ended without {what}\n{self.said()}"
            assert time.monotonic() < end, f"there was no {what}\n{self.said()}"
            time.sleep(0.02)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for launcher in self.launchers:
            launcher.process.terminate()
        for launcher in self.launchers:
            # A torchrun whose peers are gone may wait for them; it is not what is looked at any more.
            with contextlib.suppress(subprocess.TimeoutExpired):
                launcher.process.wait(10)
            launcher.kill()
        # Those of a torchrun that was killed go on.
        for pid in self.workers().values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
