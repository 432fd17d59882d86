"""Keeps one operator running, for a while two, as a Deployment does: a process that ended is started again."""

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

from chaos.actor import Actor
from prometheus_client.parser import text_string_to_metric_families
from support.operator_process import OperatorProcess

WRAPPER = Path(__file__).with_name("shifted_operator.py")
LEASE = {
    "HETEROTP_LEASE_SECONDS": "9",
    "HETEROTP_LEASE_RENEW_DEADLINE_SECONDS": "6",
    "HETEROTP_LEASE_RETRY_SECONDS": "0.5",
    "HETEROTP_API_TIMEOUT_SECONDS": "5",
}
BACK_SECONDS = 0.5  # until a process that ended is started again
SAMPLE_SECONDS = 1.0
METRICS_EVERY = 3  # samples
PREFIX = "heterotp_operator_"
READ = {  # metric -> label by which its values are summed
    f"{PREFIX}polls": "result",
    f"{PREFIX}task_restarts": "task",
    f"{PREFIX}watch_reconnects": "resource",
    f"{PREFIX}api_requests": "code",
    f"{PREFIX}leader": "",
}


class Process(OperatorProcess):
    """An operator whose clock can be moved."""

    command = ("-P", str(WRAPPER))

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def memory(self):
        """Return the resident memory, bytes; None when the process is gone."""
        with suppress(OSError, StopIteration):
            lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
            return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) * 1024
        return None


class Operators(Actor):
    """One operator process, and a second one while somebody asks for it."""

    every = 0.1

    def __init__(self, guardian, kubeconfig, namespace, recorder):
        super().__init__()
        self._recorder = recorder
        self._clock = recorder.directory / "clock"
        self._clock.write_text("0")
        common = {"CHAOS_CLOCK": str(self._clock), **LEASE}
        self._all = [
            Process(
                *(guardian, kubeconfig, namespace, recorder.directory / f"{name}.log"),
                HETEROTP_IDENTITY=f"{name}-{namespace}",
                **common,
            )
            for name in ("first", "second")
        ]
        self._seconds_wanted, self._due = 0, [0.0, 0.0]
        self._lock = threading.Lock()
        self._shifts = 0

    # faults
    def signal(self, number, pid=None):
        """Send a signal to the first operator, or to this process of it if it is still there; return its id.

        None: no process is there, because it has just ended and the next was not started yet.
        """
        with self._lock:
            running = self.leader_pid()
            if running is not None and pid in (None, running):
                os.kill(running, number)
            return running

    def leader_pid(self):
        """Return the process id of the first operator."""
        return self._all[0].process.pid if self._all[0].alive() else None

    def add_second(self):
        self._seconds_wanted += 1

    def remove_second(self):
        self._seconds_wanted -= 1

    def set_clock(self, by):
        """Let the operators' clock be off by so many seconds."""
        other = self._clock.with_suffix(".new")
        other.write_text(str(by))
        other.replace(self._clock)

    # the Deployment
    def step(self):
        with self._lock:
            for number, process in enumerate(self._all):
                wanted = number == 0 or self._seconds_wanted > 0
                if process.process is not None and process.process.poll() is not None:
                    self._ended(number, process)
                if wanted and process.process is None and time.monotonic() >= self._due[number]:
                    process.start()
                    self._recorder.write("process", state="started", pid=process.process.pid)
                elif not wanted and process.alive():
                    process.process.terminate()

    def _ended(self, number, process):
        pid, code = process.process.pid, process._ended()
        process.process = None
        self._due[number] = time.monotonic() + BACK_SECONDS
        asked = number == 1 and not self._seconds_wanted
        self._recorder.write("process", state="ended", pid=pid, code=code, asked=asked)

    def all(self):
        """Return the processes that are there."""
        return [process for process in self._all if process.alive()]

    def close(self):
        """End all processes; an orderly end is not waited for."""
        self.stop()
        for process in self._all:
            if process.alive():
                process.process.send_signal(signal.SIGCONT)
                process.kill()


class Sampler(Actor):
    """Writes the operator's memory every second and, less often, its health and metrics into the history."""

    every = SAMPLE_SECONDS

    def __init__(self, operators, recorder):
        super().__init__()
        self._operators, self._recorder, self._count = operators, recorder, 0

    def step(self):
        self._count += 1
        for process in self._operators.all():
            with suppress(AttributeError):  # it has just ended
                pid, used = process.process.pid, process.memory()
                if used is not None:
                    self._recorder.write("sample", pid=pid, bytes=used)
                if self._count % METRICS_EVERY == 0:
                    self._metrics(process, pid)

    def _metrics(self, process, pid):
        with suppress(OSError):  # it starts, or it is frozen
            values = totals(process.fetch("/metrics", 1.0))
            self._recorder.write("metrics", pid=pid, values=values, healthy=_healthy(process))


def _healthy(process):
    try:
        return process.fetch("/healthz", 1.0) == "ok"
    except OSError as error:
        return getattr(error, "code", None) != 503


def totals(text):
    """Return the sums of the metrics that the checker reads: name -> label value -> number."""
    found = {}
    for family in text_string_to_metric_families(text):
        if family.name not in READ:
            continue
        sums = found.setdefault(family.name.removeprefix(PREFIX), {})
        for sample in family.samples:
            label = sample.labels.get(READ[family.name], "")
            sums[label] = sums.get(label, 0.0) + sample.value
    return found
