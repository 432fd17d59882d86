"""The API server's clock: it stamps what decisions about deadlines compare, and the operator's own may be wrong."""

import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

RESOLUTION_SECONDS = 1.0  # of a Date header


class ApiClock:
    """Unix seconds by the Date of the API server's answers, and between two answers by a clock that never jumps."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        """wall: the operator's own clock, read before the first answer only."""
        self._monotonic, self._wall = monotonic, wall
        self._ahead: float | None = None  # of the monotonic clock

    def now(self) -> float:
        """Return the API server's time."""
        return self._wall() if self._ahead is None else self._monotonic() + self._ahead

    def heard(self, date: str | None, asked: float) -> None:
        """Take the Date of an answer to a request that was sent at `asked` by the monotonic clock."""
        try:
            stamp = parsedate_to_datetime(date or "").timestamp()
        except ValueError:
            return
        least, most = stamp - self._monotonic(), stamp + RESOLUTION_SECONDS - asked
        self._ahead = (least + most) / 2 if self._ahead is None else min(max(self._ahead, least), most)
