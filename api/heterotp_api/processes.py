"""Ties the life of a process to that of its parent: no rank and no launcher outlives the one that started it."""

import ctypes
import os
import sys
from collections.abc import Callable

PR_SET_PDEATHSIG = 1  # prctl(2)
TERM_GRACE_SECONDS = 10.0  # from SIGTERM to SIGKILL
# from the end of the first process of a gang to SIGKILL, after a SIGTERM to all of them; longer than rank 0 waits for
# the others (REPLY_SECONDS of the trainer's heartbeat) before it writes why the gang ended
LEFT_BEHIND_SECONDS = 5.0


def die_with_parent(number: int) -> Callable[[], None]:
    """Return a preexec_fn: the kernel (Linux) sends signal `number` to the child when this process dies, however."""
    parent = os.getpid()
    library = ctypes.CDLL(None) if sys.platform == "linux" else None

    def request() -> None:
        if library is not None:
            library.prctl(PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # it died before the request: no signal will come
            os._exit(128 + number)

    return request


def is_left_behind(now: float, stopped_at: float | None, ended_at: float | None) -> bool:
    """Return whether processes of a gang that still run after a SIGTERM hang, so that only SIGKILL ends them.

    A gang leaves together, after its last checkpoint, which may take long: as long as none has ended, none hangs.
    stopped_at: of the SIGTERM; ended_at: of the first end, None: there was none. All in seconds of one clock.
    """
    if stopped_at is None or ended_at is None:
        return False
    return now - stopped_at > TERM_GRACE_SECONDS and now - ended_at > LEFT_BEHIND_SECONDS
