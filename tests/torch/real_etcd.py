"""Real etcds, and certificates for them."""

import os
import signal
import subprocess

import trustme
from etcds import PROGRAM
from servers import HOST, PATIENCE, TARGET, free_port

ETCDCTL = os.environ.get("RALLYPOINT_ETCDCTL", str(TARGET / "tools" / "etcd-3.5" / "etcdctl"))


class Certificates:
    """An authority, and a certificate for this host that it signed."""

    def __init__(self, directory):
        directory.mkdir()
        self.authority, self.certificate, self.key = (directory / name for name in ("ca.pem", "cert.pem", "key.pem"))
        authority = trustme.CA()
        issued = authority.issue_cert(HOST)
        authority.cert_pem.write_to_path(self.authority)
        issued.cert_chain_pems[0].write_to_path(self.certificate)
        issued.private_key_pem.write_to_path(self.key)


def run(command, **environment):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, f"{command}: {done.stderr}"


class Etcd:
    """An etcd that can be stopped, and comes back where it was. The test's program, or this one."""

    def __init__(self, data, certificates=None, program=None):
        port, peers = free_port(), free_port()
        scheme = "https" if certificates else "http"
        self.endpoint = f"{HOST}:{port}"
        self.command = [
            program or os.environ[PROGRAM], "--data-dir", str(data), "--log-level", "error",
            "--listen-peer-urls", f"http://{HOST}:{peers}",
            "--listen-client-urls", f"{scheme}://{self.endpoint}",
            "--advertise-client-urls", f"{scheme}://{self.endpoint}",
        ]  # fmt: skip
        patience = f"{PATIENCE.seconds}s"
        self.control = [
            ETCDCTL, "--endpoints", f"{scheme}://{self.endpoint}", "--dial-timeout", patience,
            "--command-timeout", patience,
        ]  # fmt: skip
        if certificates:
            self.command += ["--cert-file", certificates.certificate, "--key-file", certificates.key]
            self.control += ["--cacert", certificates.authority]
        self.start()

    def start(self):
        self.process = subprocess.Popen(list(map(str, self.command)))

    def etcdctl(self, *command):
        run([*self.control, *command], ETCDCTL_API="3")

    def demand_password(self, user, password):
        self.etcdctl("user", "add", f"root:{password}")
        self.etcdctl("user", "grant-role", "root", "root")
        self.etcdctl("user", "add", f"{user}:{password}")
        self.etcdctl("user", "grant-role", user, "root")
        self.etcdctl("auth", "enable")

    def pause(self):
        """It is there, and answers nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def stop(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
