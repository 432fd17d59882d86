"""Has processes that hang write the stacks of all their threads, by a signal whose handler needs no interpreter.

A rank whose C extension holds Python's lock (the GIL) runs no Python, so that none of its threads can write anything.
The handler that `faulthandler` registers is C. A process is asked only if it catches the signal: any other would end.
"""

import faulthandler
import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

SIGNAL = getattr(signal, "SIGRTMIN", 0) + 7  # of those that no library is known to use; without them nobody is asked
WRITTEN_SECONDS = 2.0  # in which stacks are written; a process that is stopped (SIGSTOP) writes none
POLL_SECONDS = 0.1
PROCESSES = Path("/proc")


def answer() -> None:
    """Let this process write its stacks to its standard error whenever it is asked."""
    with suppress(OSError, ValueError, RuntimeError):  # no file behind it, or a system without this signal
        faulthandler.register(SIGNAL, file=sys.stderr, all_threads=True)


def ask(pid: int) -> list[int]:
    """Ask a process; of one that does not catch the signal (a shell) its children. Return the processes asked."""
    try:
        if _bits(PROCESSES / str(pid) / "status", "SigCgt") & _BIT:
            os.kill(pid, SIGNAL)
            return [pid]
        children = " ".join(each.read_text() for each in PROCESSES.glob(f"{pid}/task/*/children"))
    except OSError:  # it has ended, or there is no such directory
        return []
    return [asked for child in children.split() for asked in ask(int(child))]


def wait_written(pids: Iterable[int]) -> None:
    """Wait until these processes have written what they were asked for, or have had their time."""
    busy, deadline = list(pids), time.monotonic() + WRITTEN_SECONDS
    while busy and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        busy = list(filter(is_busy, busy))


def is_busy(pid: int) -> bool:
    """Return whether a process still has to write: the signal is pending or, while its handler runs, blocked."""
    threads = PROCESSES.glob(f"{pid}/task/*/status")
    with suppress(OSError):  # a thread that has just ended
        return any(_bits(each, "SigPnd", "ShdPnd", "SigBlk") & _BIT for each in threads)
    return False


def _bits(status: Path, *names: str) -> int:
    """Return the signals of these masks of a process or thread, one bit each."""
    found = 0
    for line in status.read_text().splitlines():
        name, _, mask = line.partition(":")
        if name in names:
            found |= int(mask, 16)
    return found


_BIT = 1 << (SIGNAL - 1)
