"""A process that imports PyTorch and the trainer once and forks launchers and ranks on request.

A started rank needs 3.5 s of CPU for its imports, a forked one 0.02 s. Started processes remain in
tests/distributed/cli, in the launcher's unit tests, on the cluster, and wherever `Launched(..., forked=False)` is used.
"""

import atexit
import ctypes
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from heterotp_trainer.launch.launcher import ALLOCATOR, TORCH_LOG
from support.forking import AS_LOADED, fork

PRELOADED = (
    "auto",
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma2",
    "gemma3",
    "gpt2",
    "gpt_neox",
    "vit",
    "bert",
    "roberta",
)
LARGEST_REQUEST = 200_000  # bytes: arguments and environment of one process
PR_SET_PDEATHSIG = 1


class Forked:
    """A process that the server forked: the part of subprocess.Popen that tests use."""

    def __init__(self, arguments: Sequence[str], end: socket.socket) -> None:
        self.arguments = list(arguments)
        self.returncode: int | None = None
        self._end = end
        self._handles: list[int] = []  # a pidfd: unlike the number, it cannot become another process's
        self.pid = self._received()

    def _received(self) -> int:
        answer, handles, _, _ = socket.recv_fds(self._end, 16, 1)
        self._handles += handles
        if not answer:
            self._close()
            raise AssertionError(f"the rank server ended before {self.arguments}")
        return int(answer)

    def _close(self) -> None:
        self._end.close()
        while self._handles:
            os.close(self._handles.pop())

    def poll(self) -> int | None:
        """Return the exit code, None while the process runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code; raise subprocess.TimeoutExpired when the process still runs after `timeout` seconds."""
        if self.returncode is None:
            if not select.select([self._end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.arguments, timeout or 0.0)
            self.returncode = self._received()
            self._close()
        return self.returncode

    def kill(self) -> None:
        """Send SIGKILL to a process that still runs."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handles[0], signal.SIGKILL)


class RankServer:
    """The test run's end of the server process; the server and all its forks end with the test run."""

    def __init__(self) -> None:
        self._control, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = os.pathsep.join(part for part in sys.path if part)
        with there:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(there.fileno())],
                env={**os.environ, **ALLOCATOR, **TORCH_LOG, **AS_LOADED, "PYTHONPATH": path},
                pass_fds=[there.fileno()],
            )
        atexit.register(self.close)

    def start(self, arguments: Sequence[str], environ: Mapping[str, str], output: int) -> Forked:
        """Fork a process that does what `python ARGUMENTS` does, with its output going to a descriptor."""
        request = json.dumps({"arguments": list(arguments), "environ": dict(environ)}).encode()
        if len(request) > LARGEST_REQUEST:
            raise ValueError(f"a request of {len(request)} bytes; the rank server receives at most {LARGEST_REQUEST}")
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            socket.send_fds(self._control, [request], [output, there.fileno()])
        return Forked(arguments, here)

    def close(self) -> None:
        """End the server."""
        self._control.close()
        self._process.wait()


@cache
def rank_server() -> RankServer:
    """Return the server of this test run; it starts at the first call."""
    return RankServer()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _serve(control: socket.socket) -> None:
    """Fork on request; answer with the process id and, at its end, the exit code. Ends with the test run."""
    running: dict[int, tuple[int, socket.socket]] = {}  # by pidfd: process id, and the socket of the answers
    while True:
        for ready in select.select([control, *running], [], [])[0]:
            if ready is not control:
                pid, answers = running.pop(ready)
                os.close(ready)
                with answers:
                    _answer(answers, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                continue
            request, (*descriptors,), _, _ = socket.recv_fds(control, LARGEST_REQUEST, 2)
            if not request:
                return
            _preload(json.loads(request))
            output, answers = descriptors[0], socket.socket(fileno=descriptors[1])
            pid = fork(**json.loads(request), output=output, first=_die_with_parent)
            os.close(output)
            handle = os.pidfd_open(pid)
            _answer(answers, pid, handle)
            running[handle] = pid, answers


def _preload(request: dict[str, Any]) -> None:
    """Import transformers, once, before the first fork that runs a script with it: it takes each rank seconds."""
    scripts = [Path(each) for each in request["arguments"] if each.endswith(".py") and Path(each).is_file()]
    if "transformers" not in sys.modules and any("transformers" in script.read_text() for script in scripts):
        for name in PRELOADED:
            import_module(f"transformers.models.{name}.modeling_{name.split('.')[-1]}")
        gc.freeze()


def _answer(answers: socket.socket, number: int, *descriptors: int) -> None:
    with suppress(BrokenPipeError):  # the test is over and asks no more
        socket.send_fds(answers, [str(number).encode()], descriptors)


def main(descriptor: int) -> None:
    """Be the server."""
    _die_with_parent()
    import heterotp  # noqa: F401
    import heterotp_trainer.run_rank
    import heterotp_trainer.training.builtin
    import heterotp_trainer.training.vision  # noqa: F401

    gc.freeze()  # else the first collection of each fork copies the pages of all objects
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with socket.socket(fileno=descriptor) as control:
        _serve(control)


if __name__ == "__main__":
    main(int(sys.argv[1]))
