"""The work queue, with the semantics of client-go: de-duplicated keys, one worker per key, delays, back-off.

Ready keys are taken in rotation by namespace (fair_turns.py).
"""

import asyncio
import heapq
import math
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from heterotp_operator.fair_turns import FairTurns, Key

__all__ = ["Key", "QueueObserver", "WorkQueue"]

BASE_DELAY_SECONDS = 0.005
MAX_DELAY_SECONDS = 1000.0
NEIGHBOUR_SECONDS = 1.0  # so long a namespace counts as one that needs the workers, after a key of it was taken


class QueueObserver(Protocol):
    """Receives what happens in a queue; the operator's metrics implement it."""

    def added(self) -> None:
        """A key became ready."""

    def retried(self) -> None:
        """A key was put back after an error."""

    def waited(self, seconds: float) -> None:
        """A key was taken after having been ready for so long."""


class _Silent:
    def added(self) -> None: ...

    def retried(self) -> None: ...

    def waited(self, seconds: float) -> None: ...


class WorkQueue:
    """Keys to work on: a key is ready at most once, and a key in work is ready again only after `done`."""

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        observer: QueueObserver | None = None,
        workers: int | None = None,
    ) -> None:
        """workers: how many take keys, of which no namespace gets all; None: there is no bound."""
        self._now = now
        self._observer = observer or _Silent()
        self._turns = FairTurns(workers)
        self._dirty: dict[Key, float] = {}  # key -> when it became ready
        self._working: dict[Key, float] = {}  # key -> when it was taken, or the work on it last went on
        self._failures: dict[Key, int] = {}
        self._last: tuple[str, float] = "", -math.inf  # the namespace of the last key that was taken, and when
        self._last_other = -math.inf  # when a key of another namespace than that was taken
        self._due: dict[Key, float] = {}
        self._timers: list[tuple[float, Key]] = []
        self._idle: deque[asyncio.Future[None]] = deque()  # workers that wait for a key; each key wakes one
        self._alarm: asyncio.TimerHandle | None = None  # for the next timer; one for all of them

    def __len__(self) -> int:
        """Return how many keys are ready and not in work."""
        return len(self._turns)

    @property
    def working(self) -> int:
        """Return how many keys are being worked on."""
        return len(self._working)

    def oldest_work_seconds(self) -> float:
        """Return for how long the worker that is stuck for longest has not gone on."""
        return self._now() - min(self._working.values(), default=self._now())

    def progressed(self, key: Key) -> None:
        """Note that the work on a key goes on: a worker that makes thousands of pods is busy, not stuck."""
        if key in self._working:
            self._working[key] = self._now()

    def beside_others(self, key: Key) -> bool:
        """Return whether keys of other namespaces were taken just now: work on this one must leave them time."""
        namespace, at = self._last
        return self._now() - (at if namespace != key[0] else self._last_other) <= NEIGHBOUR_SECONDS

    def add(self, key: Key) -> None:
        """Make the key ready; while it is in work, make it ready again after that."""
        if key in self._dirty:
            return
        self._dirty[key] = self._now()
        self._observer.added()
        if key not in self._working:
            self._turns.add(key)
            self._wake_one()

    def add_after(self, key: Key, delay: float) -> None:
        """Make the key ready in `delay` seconds; of several delays the earliest counts."""
        if delay <= 0:
            self.add(key)
            return
        due = self._now() + delay
        if self._due.get(key, due + 1) <= due:
            return
        self._due[key] = due
        heapq.heappush(self._timers, (due, key))
        if self._idle and self._timers[0] == (due, key):
            self._set_alarm()

    def retry(self, key: Key) -> float:
        """Make the key ready after its exponential back-off and return that delay in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        # the exponent is bounded, so that a key failing for days does not overflow
        delay: float = min(BASE_DELAY_SECONDS * 2 ** min(failures, 32), MAX_DELAY_SECONDS)
        self._observer.retried()
        self.add_after(key, delay)
        return delay

    def forget(self, key: Key) -> None:
        """Reset the key's back-off after a success."""
        self._failures.pop(key, None)

    def discard(self, key: Key) -> None:
        """Drop the key's timer and back-off because its object is gone."""
        self._failures.pop(key, None)
        self._due.pop(key, None)

    def promote(self) -> float | None:
        """Make due keys ready and return the seconds until the next timer, None without one."""
        while self._timers:
            due, key = self._timers[0]
            if self._due.get(key) != due:  # overtaken by an earlier timer, or discarded
                heapq.heappop(self._timers)
            elif due <= self._now():
                heapq.heappop(self._timers)
                del self._due[key]
                self.add(key)
            else:
                return due - self._now()
        return None

    def take(self) -> Key | None:
        """Take the next ready key into work; None: there is none, or its namespace holds its share of the workers."""
        self.promote()
        key = self._turns.take()
        if key is None:
            return None
        now = self._working[key] = self._now()
        self._observer.waited(now - self._dirty.pop(key))
        if self._last[0] != key[0]:
            self._last_other = self._last[1]
        self._last = key[0], now
        return key

    async def get(self) -> Key:
        """Wait for a ready key and take it into work."""
        while True:
            key = self.take()
            if key is not None:
                self._wake_one()  # for the next key: what this one ended may have freed the turn of several
                return key
            turn = asyncio.get_running_loop().create_future()
            self._idle.append(turn)
            self._set_alarm()
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():
                    self._wake_one()  # the key that it was woken for
                raise

    def done(self, key: Key) -> None:
        """End the work on a key; if it was added meanwhile it is ready again."""
        del self._working[key]
        self._turns.done(key)
        if key in self._dirty:
            self._turns.add(key)
        self._wake_one()

    def _wake_one(self) -> None:
        """Let an idle worker look for a key, if there is one; it wakes the next."""
        while len(self._turns) and self._idle:
            turn = self._idle.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _set_alarm(self) -> None:
        """Be called when the next timer is over."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if (delay := self.promote()) is not None and self._idle:
            self._alarm = asyncio.get_running_loop().call_later(delay, self._set_alarm)
