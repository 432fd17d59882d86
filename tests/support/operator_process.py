"""A process of the operator on this machine, for one namespace of an API server."""

import os
import subprocess
import sys
import urllib.request

from support.patience import PATIENCE_SECONDS
from support.places import ROOT
from support.ports import free_port

PACKAGES = [str(ROOT / part) for part in ("api", "operator")]


class OperatorProcess:
    """A process of `python -m heterotp_operator` for one namespace."""

    command = ("-m", "heterotp_operator")

    def __init__(self, guardian, kubeconfig, namespace, log, **settings):
        self.guardian, self.log, self.namespace = guardian, log, namespace
        self.port = free_port()
        given = {
            "KUBECONFIG": str(kubeconfig),
            "PYTHONPATH": os.pathsep.join(PACKAGES),
            "HETEROTP_NAMESPACES": namespace,
            "HETEROTP_LEASE_NAMESPACE": namespace,
            "HETEROTP_IDENTITY": f"test-{namespace}",
            "HETEROTP_METRICS_HOST": "127.0.0.1",
            "HETEROTP_METRICS_PORT": str(self.port),
            "HETEROTP_RELIST_RESYNC_SECONDS": "0.5",
            "HETEROTP_POLL_SECONDS": "0.5",
            "HETEROTP_TRAINER_IMAGE": "heterotp/trainer:test",
        }
        self.env = {**os.environ, **given, **settings}
        self.process = None

    def start(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *self.command], env=self.env, stdout=log, stderr=log, cwd="/"
            )
        self.guardian.watch(self.process.pid)
        return self

    def stop(self):
        """Send SIGTERM and return the exit code."""
        self.process.terminate()
        return self._ended()

    def kill(self):
        """Send SIGKILL and return the exit code."""
        self.process.kill()
        return self._ended()

    def _ended(self):
        code = self.process.wait(PATIENCE_SECONDS)
        self.guardian.forget(self.process.pid)
        return code

    def fetch(self, path, seconds=PATIENCE_SECONDS):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=seconds) as answer:
            return answer.read().decode()
