"""A real Slurm: three nodes, and a host `login` with the controller, on which jobs are submitted.

Configuration, state, keys and sockets are in a directory of the test. Nothing of it is a service of the system, and
when the cluster is closed, everything on its hosts is gone.
"""

import fcntl
import os
import pathlib
import stat
import subprocess

from hosts import TARGET, Network, program, until

SLURM = TARGET / "tools" / "slurm"
NODES = ["node0", "node1", "node2"]
GPUS = 2

CONFIGURATION = """
ClusterName=test
SlurmctldHost=login
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# A job that is queued again waits until its old credentials are of no use.
AuthInfo=socket={directory}/munge.socket,cred_expire=10
PluginDir={plugins}
PlugStackConfig={directory}/plugstack.conf
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
ProctrackType=proctrack/{tracking}
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
# A node that says nothing is down after this many seconds, and back as soon as it says something.
SlurmdTimeout=6
ReturnToService=2
# After scancel, this many seconds for what was told to end.
KillWait=30
# How often it looks for jobs that may begin, in seconds.
SchedulerParameters=sched_interval=2,bf_interval=2
SlurmdParameters=config_overrides
NodeName=node[0-2] CPUs=4 RealMemory=1000 Gres=gpu:{gpus}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Cluster:
    def __init__(self, directory):
        assert (SLURM / "libraries").exists(), "there is no Slurm; scripts/slurm-tools fetches it"
        self.directory = directory
        self.environment = {
            **os.environ,
            "LD_LIBRARY_PATH": (SLURM / "libraries").read_text().strip(),
            "SLURM_CONF": str(self.directory / "slurm.conf"),
            "PATH": f"{SLURM}/usr/bin:{SLURM}/usr/sbin:{self.directory}/bin:{os.environ['PATH']}",
        }
        self.daemons = {}
        # Slurm names control groups after nodes and jobs, so there is one such cluster on a machine at a time.
        self.lock = os.open("/sys/fs/cgroup", os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.network = Network(self.directory, ["login", *NODES])
        try:
            self._configure()
            self._start()
        except BaseException:
            self.close()
            raise

    def _configure(self):
        for name in ["state", "bin", *(f"spool-{node}" for node in NODES)]:
            (self.directory / name).mkdir()
        (self.directory / "bin" / "rallypoint").symlink_to(TARGET / "debug" / "rallypoint")
        plugins = next(SLURM.glob("usr/lib/*/slurm-wlm"))
        tracking = "cgroup" if _has_freezer() else "linuxproc"
        text = CONFIGURATION.format(directory=self.directory, plugins=plugins, gpus=GPUS, tracking=tracking)
        (self.directory / "slurm.conf").write_text(text)
        (self.directory / "plugstack.conf").touch()
        for number in range(GPUS):
            # Slurm wants devices, and asks no more of them than that.
            os.mknod(self.directory / f"gpu{number}", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        (self.directory / "gres.conf").write_text(f"Name=gpu File={self.directory}/gpu[0-{GPUS - 1}]\n")
        (self.directory / "cgroup.conf").write_text("CgroupPlugin=autodetect\nIgnoreSystemd=yes\n")
        key = self.directory / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)

    def _start(self):
        files = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munge.pid", "seed-file": "munge.seed"}
        options = [f"--{name}={self.directory / file}" for name, file in files.items()]
        self._daemon("login", "munged", "--foreground", "--force", "--num-threads=2", *options)
        until("munged listens", (self.directory / "munge.socket").exists, self._gone)
        self._daemon("login", "slurmctld", "-D")
        for node in NODES:
            self.start_node(node)
        until("all nodes are idle", lambda: set(self.states().values()) == {"idle"}, self._gone)

    def _daemon(self, host, program, *arguments):
        command = self.network.hosts[host].enter(SLURM / "usr" / "sbin" / program, *arguments)
        with open(self.directory / f"{program}-{host}.log", "ab") as log:
            process = subprocess.Popen(
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self.daemons[program, host] = process

    def _gone(self):
        """Which daemon has ended, and what it said."""
        for (name, host), process in self.daemons.items():
            if process.poll() is not None:
                return f"{name} on {host} ended: " + (self.directory / f"{name}-{host}.log").read_text()[-2000:]
        return None

    def start_node(self, node):
        self._daemon(node, "slurmd", "-D", "-N", node, "-d", SLURM / "usr" / "sbin" / "slurmstepd")

    def end_slurmd(self, node):
        """Kills the daemon of a node. What it has started goes on."""
        process = self.daemons.pop(("slurmd", node))
        process.kill()
        process.wait()

    def states(self):
        """The state of each node, if the controller answers."""
        said = self.command("sinfo", "-N", "-h", "-o", "%N %t", may_fail=True)
        return dict(line.split() for line in said.splitlines())

    def command(self, *words, directory="/", may_fail=False):
        """Runs a command on the host `login`, and returns what it said."""
        said = subprocess.run(
            self.network.hosts["login"].enter(*words, directory=directory),
            env=self.environment, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert said.returncode == 0 or may_fail, f"{' '.join(map(str, words))}: {said.stdout}{said.stderr}"
        return said.stdout.strip()

    def left(self):
        """What is left on the nodes of what a job has started."""
        daemons = {"slurmd", "slurmstepd"}
        hosts = [self.network.hosts[node] for node in NODES]
        return [(host.name, program(pid)) for host in hosts for pid in host.processes() if program(pid) not in daemons]

    def repair(self):
        """Ends what is there, and brings back nodes that were lost."""
        self.command("scancel", "--user=root")
        for node in NODES:
            if ("slurmd", node) not in self.daemons:
                self.network.hosts[node].kill()
                self.start_node(node)
        until("all nodes are idle", lambda: set(self.states().values()) == {"idle"}, self._gone)

    def close(self):
        self.network.close()
        for process in self.daemons.values():
            process.wait()
        for node in NODES:
            for group in pathlib.Path("/sys/fs/cgroup").glob(f"*/slurm_{node}"):
                for path, _, _ in os.walk(group, topdown=False):
                    os.rmdir(path)
        os.close(self.lock)


def _has_freezer():
    """Whether control groups can be made by which Slurm suspends jobs. Otherwise it does so by signals."""
    probe = pathlib.Path(f"/sys/fs/cgroup/freezer/slurm_probe_{os.getpid()}")
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError:
        return False
    return True
