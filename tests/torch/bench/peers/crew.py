"""A process that has imported PyTorch once, and forks nodes and torchruns that need not import it again.

A hundred processes that import PyTorch would keep this machine busy for minutes before anything could be measured. What
is measured begins after the import, and is the same in a process that was forked. It is told what to do by lines of
JSON on its input, and ends with it.
"""

import ctypes
import gc
import inspect
import json
import logging
import os
import resource
import select
import signal
import subprocess
import sys
import time
import traceback

from servers import TARGET

from bench.workers import TESTS

# What they say, most of which is of no interest.
LOG = TARGET / "bench-peers.log"
PR_SET_PDEATHSIG = 1
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 0x1000, 0x4000, 0x40000


# ---- This side: the process that measures


class Crew:
    """The process, for as long as the block lasts."""

    def __init__(self):
        path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "TORCH_CPP_LOG_LEVEL": "FATAL", "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
        # As a script, which the command `torchrun` is, too: under `python -m` PyTorch's handlers would be much slower,
        # because they look up the file of every function that called them.
        command = [sys.executable, __file__]
        with open(LOG, "wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=TESTS,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def ask(self, order, **arguments):
        self.process.stdin.write(json.dumps([order, arguments]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the processes of PyTorch failed; what they said is in {LOG}")
        return json.loads(line)

    def form(self, **arguments):
        """Lets nodes form a group. Returns the seconds that it took, or None if there was none."""
        return self.ask("form", **arguments)

    def torchrun(self, arguments, output, namespaces, environment):
        """Starts a torchrun, and returns its process id."""
        return self.ask(
            "torchrun", arguments=arguments, output=str(output), namespaces=namespaces, environment=environment
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


# ---- The other side


def system_call(what, *arguments):
    if getattr(ctypes.CDLL(None, use_errno=True), what)(*arguments):
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def resolve_by_hosts_file():
    """Lets this process and its children resolve names by /etc/hosts alone.

    PyTorch's client of stores asks for the name of each address that it connects to. A name server that is slow, or
    that a hundred processes overload, is not what is measured.
    """
    system_call("unshare", CLONE_NEWNS)
    system_call("mount", b"none", b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None)
    system_call("mount", b"/dev/null", b"/etc/resolv.conf", None, ctypes.c_ulong(MS_BIND), None)


def enter(keeper):
    """Moves this process to the host of a keeper."""
    for name in ("net", "uts", "mnt"):
        descriptor = os.open(f"/proc/{keeper}/ns/{name}", os.O_RDONLY)
        # A mount namespace is left alone by those who share their root with others: a fork does not.
        system_call("setns", descriptor, 0)
        os.close(descriptor)


def child(work):
    """Forks. The child does its work and is gone; the parent gets its id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        work()
        code = 0
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Nodes:
    """Nodes of one group, each a process with a handler."""

    def __init__(self, backend, endpoint, nodes, run_id, keeper=None, polls=False, conf=None):
        self.backend, self.endpoint, self.count, self.run_id = backend, endpoint, nodes, run_id
        self.keeper, self.polls, self.conf = keeper, polls, conf or {}
        self.pids = []
        self.told, self.tell = os.pipe()
        self.go, self.start = os.pipe()

    def node(self, number):
        os.close(self.start)
        if self.keeper:
            enter(self.keeper)
        # The handlers on etcd write the whole state to the log at every change.
        logging.disable(logging.CRITICAL)
        from torch.distributed.elastic.rendezvous import RendezvousParameters
        from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

        conf = dict(self.conf)
        if self.backend in ("c10d", "rallypoint"):
            conf["is_host"] = str(number == 0).lower()
        parameters = RendezvousParameters(
            backend=self.backend, endpoint=self.endpoint, run_id=self.run_id, min_nodes=self.count,
            max_nodes=self.count, local_addr="127.0.0.1", **conf,
        )  # fmt: skip
        handler = get_rendezvous_handler(parameters)
        os.write(self.tell, b"r -\n")
        os.read(self.go, 1)
        info = handler.next_rendezvous()
        at = time.monotonic()
        rank, world = (info.rank, info.world_size) if hasattr(info, "rank") else info[1:]
        assert world == self.count, f"a group of {world}"
        os.write(self.tell, b"%d %.6f\n" % (rank, at))
        while True:
            time.sleep(0.1)
            if self.polls:
                # As the agent of torchrun does while its workers are healthy.
                handler.num_nodes_waiting()

    def hear(self, count, deadline, pending=b""):
        """So many lines of nodes, or as many as come in time."""
        lines = []
        while len(lines) < count:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.told], [], [], left)[0]:
                break
            pending += os.read(self.told, 65536)
            *whole, pending = pending.split(b"\n")
            lines += [line.decode().split() for line in whole]
        return lines

    def form(self, limit):
        # The first one hosts what the others connect to, where there is something to host.
        opening = time.monotonic() + 120
        self.pids.append(child(lambda: self.node(0)))
        if len(self.hear(1, opening)) < 1:
            return None
        for number in range(1, self.count):
            self.pids.append(child(lambda: self.node(number)))
        if len(self.hear(self.count - 1, opening)) < self.count - 1:
            return None
        begun = time.monotonic()
        os.write(self.start, b"g" * self.count)
        found = self.hear(self.count, begun + limit)
        if len(found) < self.count:
            return None
        assert sorted(int(rank) for rank, _ in found) == list(range(self.count)), "ranks are missing or doubled"
        return max(float(at) for _, at in found) - begun

    def end(self):
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
        # They are nobody's children any more when they are gone: see main.
        deadline = time.monotonic() + 30
        while any(os.path.exists(f"/proc/{pid}") for pid in self.pids) and time.monotonic() < deadline:
            time.sleep(0.01)
        for descriptor in (self.told, self.tell, self.go, self.start):
            os.close(descriptor)


standing = []


def form(limit, stay=False, **arguments):
    nodes = Nodes(polls=stay, **arguments)
    if stay:
        standing.append(nodes)
        return nodes.form(limit)
    try:
        return nodes.form(limit)
    finally:
        nodes.end()


def dismiss():
    """Ends the group that was to stay."""
    while standing:
        standing.pop().end()
    return True


def torchrun(arguments, output, namespaces, environment):
    def run():
        with open(output, "wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.setpgid(0, 0)
        enter(namespaces)
        os.environ.update(environment)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        from torch.distributed.run import main

        main(arguments)

    return child(run)


ORDERS = {"form": form, "dismiss": dismiss, "torchrun": torchrun}


def main():
    # Before PyTorch is imported: a process with several threads gets no mounts of its own.
    resolve_by_hosts_file()
    import torch.distributed.elastic.rendezvous.registry  # noqa: F401
    from torch.distributed.elastic.rendezvous import (  # noqa: F401
        c10d_rendezvous_backend,
        etcd_rendezvous,
        etcd_rendezvous_backend,  # noqa: F401
    )

    import rallypoint._torch_handler  # noqa: F401

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # The kernel takes those away that end; a child that starts others is told in `child`.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # PyTorch's handlers name the function that calls them whenever they do something. What Python looks up for that is
    # looked up here, once, and not by each node while it is measured.
    inspect.stack()
    gc.collect()
    gc.freeze()
    answers = os.fdopen(os.dup(1), "w")
    # What nodes print is not for the process that measures.
    os.dup2(2, 1)
    for line in sys.stdin:
        order, arguments = json.loads(line)
        answers.write(json.dumps(ORDERS[order](**arguments)) + "\n")
        answers.flush()


if __name__ == "__main__":
    # The directory of a script comes first, and is no place to import from.
    sys.path.pop(0)
    main()
