"""What follows when ranks of an elastic gang are asked to stop (SIGTERM): pure decisions of the rank that leads.

One rank alone leaves, as a node that is drained asks for, and the others go on; several at once are the end of the run.
"""

from collections.abc import Collection
from typing import Literal

ALONE_SECONDS = 3.0  # for which another rank may follow before one that was asked leaves alone
Answer = Literal["None", "Wait", "Leave", "Stop"]


def answer(asked: Collection[int], seconds: float, live: int, least: int) -> Answer:
    """Return what is done about ranks that were asked to stop, the first of them `seconds` ago.

    live: ranks of the gang now; least: spec.runPolicy.elastic.minRanks, below which it cannot go on.
    """
    if not asked:
        return "None"
    if len(asked) > 1 or live - 1 < max(1, least):
        return "Stop"
    return "Leave" if seconds >= ALONE_SECONDS else "Wait"


class Requests:
    """Since when ranks are asked to stop, as the rank that leads has heard it."""

    def __init__(self) -> None:
        self._since: float | None = None
        self.answer: Answer = "None"

    def hear(self, asked: Collection[int], now: float, live: int, least: int) -> None:
        """Take who is asked, by the newest reports; now: seconds of one clock."""
        if not asked:
            self._since = None
        elif self._since is None:
            self._since = now
        self.answer = answer(asked, now - (self._since if self._since is not None else now), live, least)
