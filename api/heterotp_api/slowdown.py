"""How much slower a rank is (chi), and how it is slowed on purpose. Imports nothing heavy: help is instant."""

from collections.abc import Iterable
from typing import Literal

SlowdownMode = Literal["sleep", "spin", "repeat"]
MOST_SLOWDOWN = 1000  # bound of the product of all injections on one rank
NOTABLE_SLOWDOWN = 1.05  # chi below which no rank is shown as the slowest


def slowdown_text(chi: float) -> str:
    """Return a slow-down: 4.0x, 250x."""
    return f"{chi:.1f}x" if chi < 100 else f"{chi:.0f}x"


def slowest(ranks: Iterable[tuple[int, float | None]]) -> tuple[int, float] | None:
    """Return rank and chi of the slowest of `ranks`; None: no rank is slow.

    Of ranks with the same rounded chi it is the first one, so that noise does not change the answer.
    """
    known = [(round(chi, 1), -rank, chi) for rank, chi in ranks if chi is not None and chi >= NOTABLE_SLOWDOWN]
    if not known:
        return None
    _, rank, chi = max(known)
    return -rank, chi
