"""The lease of injections: they hold only while somebody is there who could take them back."""

import time
from collections.abc import Callable


class Lease:
    """Counted on rank 0's own monotonic clock, so that no other clock matters; renewed from the server's thread."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._renewed = now()

    def renew(self) -> None:
        """Begin to count anew: the operator has just been heard."""
        self._renewed = self._now()

    def is_over(self, seconds: float | None) -> bool:
        """Return whether it was not renewed for so many seconds; None: there is no lease, nothing ever runs out."""
        return seconds is not None and self._now() - self._renewed > seconds
