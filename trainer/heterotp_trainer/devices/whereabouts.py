"""Where a rank is now, for threads that watch it: in which phase, and which collective it waits for."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Whereabouts:
    """What the training loop of this rank waits for, and since when; written by the loop, read by other threads."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """now: seconds of a clock that never goes back."""
        self._now = now
        self.iteration = 0  # that the rank works on
        self.reason = ""  # why an iteration may take long: a checkpoint, an evaluation; empty: no reason
        self._waits: tuple[str, float] = ("", now())

    @property
    def now(self) -> tuple[str, float]:
        """What the rank waits for, empty where it computes, and for how many seconds."""
        what, since = self._waits
        return what, self._now() - since

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Wait for a collective inside of the block."""
        before = self._waits[0]
        self._waits = (what, self._now())
        try:
            yield
        finally:
            self._waits = (before, self._now())

    @contextmanager
    def busy(self, reason: str) -> Iterator[None]:
        """Do what may take long inside of the block."""
        before, self.reason = self.reason, reason
        try:
            yield
        finally:
            self.reason = before
