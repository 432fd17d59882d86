"""Phases of a rank's time: every moment belongs to exactly one phase, so that phases sum to wall time."""

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from heterotp_api.stages import OWN_STAGES

from heterotp_trainer.devices.stage_times import EMBEDDING, NOWHERE, OF_PHASE, StageTimes

MOST_PENDING = 8  # iterations that a device may lag behind the host
PHASES = ("data", "matmul", "unit", "fixed", "wait", "migrate", "control")
COMPUTE = ("matmul", "unit", "fixed")  # T = M + U + F of docs/algorithms.md, How a decision is made
ATTENTION = "attention"  # the part of "unit" that moves with heads; separate in a clock, added to "unit" in reports
VOCABULARY = "vocabulary"  # likewise: the part that moves with vocabulary rows
UPDATE = "update"  # the optimizer's step; reports divide it among the families by the parameters that a rank owns
BOOKED = (*PHASES, ATTENTION, VOCABULARY, UPDATE)


class Clock(Protocol):
    """What layers need of a clock: a switch to the phase that begins now.

    Layers set `stage` before the switch that begins their work: that of the model's work from the next switch on.
    """

    current: str
    stage: str
    age: int | None  # iterations since the one whose times `take` returned; None: it returned none

    def switch(self, phase: str) -> str:
        """Book the time since the last switch on the current phase, begin `phase`, return the one before."""
        ...

    def take(self) -> dict[str, float]:
        """Return seconds per phase since the last take."""
        ...

    def take_stages(self) -> StageTimes:
        """Return the same iteration by stage, and begin the next one; call once per iteration, after `take`."""
        ...

    @property
    def moment(self) -> float:
        """Seconds of a clock that all processes of a machine share, at the last switch."""
        ...

    def met(self, arrived: float) -> None:
        """Count a collective that this rank waited for since `arrived`, and that was complete at the last switch."""
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
        self.stage: str = EMBEDDING  # from the next switch on
        self._running: str = EMBEDDING  # since the last one
        self._own = dict.fromkeys((*OWN_STAGES, NOWHERE), 0)
        self._arrived = self._completed = 0.0  # sums over the iteration's meetings
        self._meetings = 0

    def switch(self, phase: str) -> str:
        """See Clock.switch; raises KeyError for an unknown phase."""
        now = self._now_ns()
        passed = now - self._since
        self._spent[self.current] += passed
        self._own[self._running] += passed
        self._since = now
        before, self.current = self.current, phase
        self._running = OF_PHASE.get(phase, self.stage)
        return before

    def take(self) -> dict[str, float]:
        """See Clock.take."""
        self.switch(self.current)
        taken = {name: spent * 1e-9 for name, spent in self._spent.items()}
        self._spent = dict.fromkeys(BOOKED, 0)
        return taken

    def take_stages(self) -> StageTimes:
        """See Clock.take_stages."""
        own, count = tuple(self._own[name] * 1e-9 for name in OWN_STAGES), self._meetings
        times = StageTimes(own, self._arrived / (count or 1), self._completed / (count or 1), count)
        self._own = dict.fromkeys(self._own, 0)
        self._arrived, self._completed, self._meetings = 0.0, 0.0, 0
        self.stage = EMBEDDING
        return times

    @property
    def moment(self) -> float:
        """See Clock.moment."""
        return self._since * 1e-9

    def met(self, arrived: float) -> None:
        """See Clock.met."""
        self._arrived += arrived
        self._completed += self.moment
        self._meetings += 1


class NullClock:
    """A clock that measures nothing, for layers outside a session."""

    current = "fixed"
    stage: str = EMBEDDING
    age: int | None = 0
    moment = 0.0

    def switch(self, phase: str) -> str:
        """Do nothing."""
        return phase

    def met(self, arrived: float) -> None:
        """Do nothing."""

    def take_stages(self) -> StageTimes:
        """Return no time for any stage."""
        return StageTimes()

    def take(self) -> dict[str, float]:
        """Return no time for any phase."""
        return dict.fromkeys(BOOKED, 0.0)


Mark = tuple[str, str, Any]  # the phase and the stage that begin at an event


class CudaPhaseClock:
    """Phases by CUDA events on sampled iterations, read one iteration later: the host never waits for the device.

    A switch records an event on the current stream. A layer switches to "matmul" after its collective's `wait()`, so
    that the event follows the stream's own wait and waiting is not counted as work.
    """

    def __init__(self, make_event: Callable[[], Any], sample_every: int = 1) -> None:
        self._make_event = make_event
        self._sample_every = sample_every
        self._iteration = 0
        self._marks: list[Mark] = []
        self._pending: deque[tuple[int, list[Mark]]] = deque(maxlen=MOST_PENDING)
        self.age: int | None = None
        self.current = "fixed"
        self.stage: str = EMBEDDING
        self.moment = 0.0
        self._taken = StageTimes()

    def switch(self, phase: str) -> str:
        """See Clock.switch."""
        before, self.current = self.current, phase
        if self._iteration % self._sample_every == 0 and phase != before:
            self._mark(phase)
        return before

    def _mark(self, phase: str) -> None:
        event = self._make_event()
        event.record()
        self._marks.append((phase, OF_PHASE.get(phase, self.stage), event))

    def met(self, arrived: float) -> None:
        """Count nothing: the host does not see when a collective of the device begins or ends."""

    def take_stages(self) -> StageTimes:
        """See Clock.take_stages; of the iteration that `take` returned."""
        return self._taken

    def take(self) -> dict[str, float]:
        """Return the phases of the newest iteration that the device has completed; call once per iteration.

        It is the iteration `age` iterations before the one that ends; times of those in between are dropped. All times
        are 0 where no further iteration is complete.
        """
        if self._iteration % self._sample_every == 0:
            self._mark(self.current)
        self.age, through = None, None
        while self._pending and self._pending[0][1][-1][-1].query():
            through = self._pending.popleft()
        seconds, self._taken = dict.fromkeys(BOOKED, 0.0), StageTimes()
        if through is not None:
            seconds, self._taken = _between(through[1])
            self.age = self._iteration - through[0]
        self.stage = EMBEDDING
        if self._marks:
            self._pending.append((self._iteration, self._marks))
        self._marks = []
        self._iteration += 1
        if self._iteration % self._sample_every == 0:
            self._mark(self.current)
        return seconds


def _between(marks: list[Mark]) -> tuple[dict[str, float], StageTimes]:
    """Return seconds per phase and per stage between consecutive events."""
    seconds, own = dict.fromkeys(BOOKED, 0.0), dict.fromkeys((*OWN_STAGES, NOWHERE), 0.0)
    for (phase, stage, start), (*_, end) in itertools.pairwise(marks):
        passed = start.elapsed_time(end) * 1e-3
        seconds[phase] += passed
        own[stage] += passed
    return seconds, StageTimes(tuple(own[name] for name in OWN_STAGES))
