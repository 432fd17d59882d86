"""Ties the life of a process to that of its parent: no rank and no launcher outlives the one that started it."""

import ctypes
import os
import sys
from collections.abc import Callable

PR_SET_PDEATHSIG = 1  # prctl(2)


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
