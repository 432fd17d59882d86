"""The lease of injections: they hold only while an operator polls the job, for only the operator can remove them."""

import time
from collections.abc import Callable


class Lease:
    """Seconds since the last renewal, by rank 0's own monotonic clock; the status server's thread renews it."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._renewed = now()

    def renew(self) -> None:
        """Restart the count of seconds."""
        self._renewed = self._now()

    def is_over(self, seconds: float | None) -> bool:
        """Return whether the last renewal is more than `seconds` ago; None: there is no lease, it never ends."""
        return seconds is not None and self._now() - self._renewed > seconds
