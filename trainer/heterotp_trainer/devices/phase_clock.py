"""Phases of a rank's time: every moment belongs to exactly one phase, so that phases sum to wall time."""

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

MOST_PENDING = 8  # iterations that a device may lag behind the host
PHASES = ("data", "matmul", "unit", "fixed", "wait", "migrate", "control")
COMPUTE = ("matmul", "unit", "fixed")  # T = M + U + F of docs/algorithms.md, How a decision is made
ATTENTION = "attention"  # the part of "unit" that moves with heads; separate in a clock, added to "unit" in reports
VOCABULARY = "vocabulary"  # likewise: the part that moves with vocabulary rows
UPDATE = "update"  # the optimizer's step; reports divide it among the families by the parameters that a rank owns
BOOKED = (*PHASES, ATTENTION, VOCABULARY, UPDATE)


class Clock(Protocol):
    """What layers need of a clock: a switch to the phase that begins now."""

    current: str
    age: int | None  # iterations since the one whose times `take` returned; None: it returned none

    def switch(self, phase: str) -> str:
        """Book the time since the last switch on the current phase, begin `phase`, return the one before."""
        ...

    def take(self) -> dict[str, float]:
        """Return seconds per phase since the last take."""
        ...


@contextmanager
def phase(clock: Clock, name: str) -> Iterator[None]:
    """Run a block in phase `name`, then return to the phase before."""
    before = clock.switch(name)
    try:
        yield
    finally:
        clock.switch(before)


class PhaseClock:
    """Phases by the host's monotonic clock: right for CPU and emulated devices, where the host does the work."""

    age: int | None = 0

    def __init__(self, now_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._now_ns = now_ns
        self._since = now_ns()
        self._spent = dict.fromkeys(BOOKED, 0)
        self.current = "fixed"

    def switch(self, phase: str) -> str:
        """See Clock.switch; raises KeyError for an unknown phase."""
        now = self._now_ns()
        self._spent[self.current] += now - self._since
        self._since = now
        before, self.current = self.current, phase
        return before

    def take(self) -> dict[str, float]:
        """See Clock.take."""
        self.switch(self.current)
        taken = {name: spent * 1e-9 for name, spent in self._spent.items()}
        self._spent = dict.fromkeys(BOOKED, 0)
        return taken


class NullClock:
    """A clock that measures nothing, for layers outside a session."""

    current = "fixed"
    age: int | None = 0

    def switch(self, phase: str) -> str:
        """Do nothing."""
        return phase

    def take(self) -> dict[str, float]:
        """Return no time for any phase."""
        return dict.fromkeys(BOOKED, 0.0)


class CudaPhaseClock:
    """Phases by CUDA events on sampled iterations, read one iteration later: the host never waits for the device.

    A switch records an event on the current stream. A layer switches to "matmul" after its collective's `wait()`, so
    that the event follows the stream's own wait and waiting is not counted as work.
    """

    def __init__(self, make_event: Callable[[], Any], sample_every: int = 1) -> None:
        self._make_event = make_event
        self._sample_every = sample_every
        self._iteration = 0
        self._marks: list[tuple[str, Any]] = []
        self._pending: deque[tuple[int, list[tuple[str, Any]]]] = deque(maxlen=MOST_PENDING)
        self.age: int | None = None
        self.current = "fixed"

    def switch(self, phase: str) -> str:
        """See Clock.switch."""
        before, self.current = self.current, phase
        if self._iteration % self._sample_every == 0 and phase != before:
            self._mark(phase)
        return before

    def _mark(self, phase: str) -> None:
        event = self._make_event()
        event.record()
        self._marks.append((phase, event))

    def take(self) -> dict[str, float]:
        """Return the phases of the newest iteration that the device has completed; call once per iteration.

        It is the iteration `age` iterations before the one that ends; times of those in between are dropped. All times
        are 0 where no further iteration is complete.
        """
        if self._iteration % self._sample_every == 0:
            self._mark(self.current)
        self.age, through = None, None
        while self._pending and self._pending[0][1][-1][1].query():
            through = self._pending.popleft()
        seconds = dict.fromkeys(BOOKED, 0.0)
        if through is not None:
            seconds, self.age = _between(through[1]), self._iteration - through[0]
        if self._marks:
            self._pending.append((self._iteration, self._marks))
        self._marks = []
        self._iteration += 1
        if self._iteration % self._sample_every == 0:
            self._mark(self.current)
        return seconds


def _between(marks: list[tuple[str, Any]]) -> dict[str, float]:
    """Return seconds per phase between consecutive events."""
    seconds = dict.fromkeys(BOOKED, 0.0)
    for (name, start), (_, end) in itertools.pairwise(marks):
        seconds[name] += start.elapsed_time(end) * 1e-3
    return seconds
