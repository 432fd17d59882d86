"""When each rank 0 last ended an iteration and last answered, by this process's own clock."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from heterotp_api.trainer_status import TrainerStatus

from heterotp_operator.queue import Key
from heterotp_operator.reconcile.observed import Progress

CUT_OFF_SECONDS = 60.0  # without a connection to any other job: it is rather this process that reaches nobody
# made in a row to a rank 0 that answers none: its node is within reach, and its process hangs. One may have been on its
# way when the network was cut. Later ones may fail again, for the kernel queues only so many connections
HANGING_CONNECTIONS = 2


@dataclass
class _Seen:
    pod_uid: str
    place: tuple[int, int, int]  # attempt, epoch and iteration
    moved_at: float
    answered_at: float
    unanswered: int = 0  # connections since the last answer


class ProgressWatch:
    """Seconds of a monotonic clock: a pod that this process has seen for a minute counts a minute, whatever it says."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._seen: dict[Key, _Seen] = {}
        self._connected: dict[Key, float] = {}  # when each was in reach last, the latest at the end

    def answered(self, key: Key, pod_uid: str, status: TrainerStatus | None) -> None:
        """Note an answer of a job's rank 0; status: None where it could not be used."""
        now, seen = self._now(), self._seen.get(key)
        if seen is None or seen.pod_uid != pod_uid:
            if status is None:
                return
            seen = self._seen[key] = _Seen(pod_uid, (-1, -1, -1), now, now)
        self._reach(key, now)
        seen.answered_at, seen.unanswered = now, 0
        if status is not None and (place := (status.attempt, status.epoch, status.iteration)) != seen.place:
            seen.place, seen.moved_at = place, now

    def connected(self, key: Key, pod_uid: str) -> None:
        """Note a connection to a job's rank 0 that it did not answer."""
        seen = self._seen.get(key)
        if seen is not None and seen.pod_uid == pod_uid:
            seen.unanswered += 1
            self._reach(key, self._now())

    def _reach(self, key: Key, now: float) -> None:
        self._connected.pop(key, None)
        self._connected[key] = now

    def forget(self, key: Key) -> None:
        """Drop what is known of a job without a running rank 0."""
        self._seen.pop(key, None)
        self._connected.pop(key, None)

    def of(self, key: Key, pod_uid: str) -> Progress | None:
        """Return a pod's progress; None before its first answer."""
        now, seen = self._now(), self._seen.get(key)
        if seen is None or seen.pod_uid != pod_uid:
            return None
        return Progress(now - seen.moved_at, now - seen.answered_at, self._cut_off(key, seen))

    def _cut_off(self, key: Key, seen: _Seen) -> bool:
        """Return whether it may be the network that a silence is of: neither this job nor another one is in reach."""
        if seen.unanswered >= HANGING_CONNECTIONS:
            return False
        latest = next((at for other, at in reversed(self._connected.items()) if other != key), None)
        return latest is not None and self._now() - latest > CUT_OFF_SECONDS
