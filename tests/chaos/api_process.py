"""The kube-apiserver that tools/cluster/cp-up.sh started: stopped for a while, killed and started again."""

import os
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path


class ApiProcess:
    """The API server's process; overlapping faults are counted."""

    def __init__(self, kubeconfig):
        state = Path(kubeconfig).parent
        self._pid_file, self._log = state / "pid" / "apiserver", state / "log" / "apiserver"
        arguments = Path(f"/proc/{self._pid}/cmdline").read_bytes().split(b"\0")
        self._command = [each.decode() for each in arguments if each]
        self._frozen = self._killed = 0
        self._lock, self._process = threading.Lock(), None

    @property
    def _pid(self):
        return int(self._pid_file.read_text())

    def freeze(self):
        with self._lock:
            self._frozen += 1
            self._send(signal.SIGSTOP)

    def thaw(self):
        with self._lock:
            self._frozen -= 1
            if self._frozen == 0:
                self._send(signal.SIGCONT)

    def kill(self):
        with self._lock:
            self._killed += 1
            self._send(signal.SIGKILL)
            if self._process is not None:
                self._process.wait()

    def start(self):
        """Start it again once no fault keeps it down."""
        with self._lock:
            self._killed -= 1
            if self._killed:
                return
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            self._pid_file.write_text(str(self._process.pid))
            if self._frozen:
                self._send(signal.SIGSTOP)

    def close(self):
        """End a server that was started again: it is our child, so that nobody else can wait for its end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _send(self, number):
        if self._killed and number != signal.SIGKILL:
            return
        with suppress(ProcessLookupError):
            os.kill(self._pid, number)
