"""The lock of a run directory: held by the command line, the launchers and the ranks, by whichever of them still runs.

It is an flock on run.lock. Its file descriptor is inherited, so that the lock is free only after the last process of
the run has ended, also where the command line was killed.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from heterotp_api.formatting import listed

from heterotp_cli.errors import BadInput

LOCK = "run.lock"
MOST_NAMED = 8  # processes that an error lists


def lock(workdir: Path) -> IO[str]:
    """Return the directory's lock, held until all copies of it are closed; raise BadInput while a run is alive."""
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        handle = (workdir / LOCK).open("a", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{workdir}: --workdir: cannot be written: {error.strerror}: name another directory") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        alive_text = _alive_text(list(holders(handle)))
        handle.close()
        raise BadInput(f"{workdir}: --workdir: {alive_text}: wait for it or name another directory") from None
    return handle


def is_in(workdir: Path, handle: int) -> bool:
    """Return whether the directory still holds the lock file of this descriptor: it was not removed or replaced."""
    try:
        return os.path.samestat(os.stat(workdir / LOCK), os.fstat(handle))
    except OSError:
        return False


def _alive_text(pids: list[int]) -> str:
    return "a run is alive there" + (f" (pid {listed([str(pid) for pid in pids], MOST_NAMED)})" if pids else "")


def holders(handle: IO[str]) -> Iterator[int]:
    """Yield the ids of the other processes that have a lock file open, as far as this user may see them (Linux)."""
    wanted = os.fstat(handle.fileno())
    for entry in sorted((e for e in Path("/proc").glob("[0-9]*")), key=lambda e: int(e.name)):
        if int(entry.name) != os.getpid() and _has_open(entry / "fd", wanted):
            yield int(entry.name)


def _has_open(folder: Path, wanted: os.stat_result) -> bool:
    try:
        entries = list(folder.iterdir())
    except OSError:  # the process has ended, or it is another user's
        return False
    for entry in entries:
        with suppress(OSError):  # closed meanwhile
            if os.path.samestat(entry.stat(), wanted):
                return True
    return False


def alive(workdir: Path) -> bool:
    """Return whether a run holds the directory's lock."""
    try:
        with (workdir / LOCK).open(encoding="utf-8") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # there is no lock file
    return False
