"""What the ranks reported in the last iterations, as decisions see it."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Observation:
    """One measured iteration: seconds per rank; `full` is matmul as it would be with nothing taken (M hat)."""

    full: Array
    unit: Array
    fixed: Array
    wait: Array

    @classmethod
    def of(
        cls, full: Sequence[float], unit: Sequence[float], fixed: Sequence[float], wait: Sequence[float]
    ) -> "Observation":
        """Return the observation of plain numbers."""
        return cls(*(np.asarray(values, dtype=np.float64) for values in (full, unit, fixed, wait)))

    @property
    def total(self) -> Array:
        """T hat = M hat + U + F, seconds per rank."""
        return self.full + self.unit + self.fixed


class History:
    """The newest observations, at most two windows of them."""

    def __init__(self, window: int) -> None:
        self.window = window
        self._kept: deque[Array] = deque(maxlen=2 * window)

    def add(self, observation: Observation) -> None:
        """Take one measured iteration."""
        seen = observation
        self._kept.append(np.stack([seen.full, seen.unit, seen.fixed, seen.wait]))

    def resized(self, window: int) -> "History":
        """Return a history of another window with what is known so far."""
        other = History(window)
        other._kept.extend(self._kept)
        return other

    def median(self, back: int = 0) -> Observation | None:
        """Return the medians over the newest window, or over the one `back` windows before; None: too few yet."""
        end = len(self._kept) - back * self.window
        if end < self.window:
            return None
        stack = np.sort(np.stack([self._kept[i] for i in range(end - self.window, end)]), axis=0)
        low, high = stack[(self.window - 1) // 2], stack[self.window // 2]
        return Observation(*((low + high) / 2))
