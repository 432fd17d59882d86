"""Forks of this process that do what `python ARGUMENTS` does: ranks, and launchers that fork their ranks in turn.

Process tree, signals, pipes and exit codes are those of started processes. Three things differ: forks share one hash
seed, their /proc/PID/environ is this process's (`rank_of` reads the name), and what a library reads from the
environment while it is loaded is this process's too (`forkable`).
"""

import atexit
import ctypes
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

POLL_SECONDS = 0.02
PR_SET_NAME = 15
AS_LOADED = {"OMP_NUM_THREADS": "1"}  # read while a library is loaded: a fork cannot have other values
LAUNCHER = ["-m", "heterotp_trainer.launch"]
TRAINER = ["-P", "-m", "heterotp_trainer"]

_popen = subprocess.Popen


def forkable(command: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Return whether a fork can replace this command: the launcher, the trainer or a script, on one thread."""
    arguments = list(command[1:])
    known = arguments == TRAINER or arguments[:2] == LAUNCHER or (arguments[:1] != [] and arguments[0].endswith(".py"))
    return command[0] == sys.executable and known and AS_LOADED.items() <= environ.items()


def rank_of(pid: int) -> int | None:
    """Return the rank of a started or forked process; None for any other process."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        variables = Path(f"/proc/{pid}/environ").read_text().split("\0")
    except OSError:
        return None
    found = [each for each in (name, *variables) if each.startswith(("rank-", "RANK="))]
    return int(found[0][len("rank-") :]) if found else None


def fork(arguments: Sequence[str], environ: Mapping[str, str], output: int, first: Callable[[], None]) -> int:
    """Fork a process that calls first() and does what `python ARGUMENTS` does; return its process id.

    output: the descriptor that its standard output and standard error go to.
    """
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        first()
        _take_over(environ, output)
        code = _run(list(arguments))
    except BaseException as error:
        traceback.print_exc()
        sys.last_value = error  # as Python leaves it
    threading._shutdown()  # type: ignore[attr-defined]  # the end of a Python process, in its order
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


def _take_over(environ: Mapping[str, str], output: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor, source in ((0, nothing), (1, output), (2, output)):
        os.dup2(source, descriptor)
    _let_go_of_inherited(nothing)
    # new objects: another thread of the parent may have held the locks of the old ones
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environ)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if "RANK" in environ:
        ctypes.CDLL(None).prctl(PR_SET_NAME, f"rank-{environ['RANK']}".encode())


def _let_go_of_inherited(nothing: int) -> None:
    """Point each inherited descriptor at /dev/null, so that peers of its pipe or socket see this process as a real one.

    Not closed: the parent's Python objects, which this process inherits too, close their numbers when they are freed.
    """
    for descriptor in [int(name) for name in os.listdir("/proc/self/fd")]:
        if descriptor > 2 and descriptor != nothing:
            with suppress(OSError):  # the listing's own descriptor
                os.fstat(descriptor)
                os.dup2(nothing, descriptor, inheritable=False)


def _run(arguments: list[str]) -> int:
    """Do what `python ARGUMENTS` does; return the exit code."""
    if arguments[:2] == LAUNCHER:
        subprocess.Popen = _start  # type: ignore[assignment, misc]
    try:
        if "-m" in arguments[:2]:
            sys.argv = arguments[arguments.index("-m") + 1 :]
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            sys.argv = arguments
            sys.path.insert(0, str(Path(arguments[0]).parent))
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    return 0


def _start(command: Sequence[str], *, env: dict[str, str], preexec_fn: Callable[[], None], **options: Any) -> Any:
    """Replace subprocess.Popen as the launcher calls it."""
    if forkable(command, env):
        return ForkedRank(command[1:], env, preexec_fn)
    return _popen(command, env=env, preexec_fn=preexec_fn, **options)


class ForkedRank:
    """A child of a forked launcher: the part of subprocess.Popen that the launcher uses."""

    def __init__(self, arguments: Sequence[str], environ: Mapping[str, str], first: Callable[[], None]) -> None:
        output, write = os.pipe()
        self.pid = fork(arguments, environ, write, first)
        os.close(write)
        self.stdout: IO[str] = open(output, errors="replace")  # noqa: SIM115
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                return None  # a signal handler calls this while the interrupted call has the status
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"rank process {self.pid}", timeout)
            time.sleep(POLL_SECONDS)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
