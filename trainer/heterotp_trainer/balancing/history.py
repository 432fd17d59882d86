"""What the ranks reported in the last iterations, as decisions see it."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    migrating: bool = False  # whether columns migrated meanwhile, so that `wait` holds their transfers

    @classmethod
    def of(
        cls,
        full: Sequence[float],
        unit: Sequence[float],
        fixed: Sequence[float],
        wait: Sequence[float],
        migrating: bool = False,
    ) -> "Observation":
        """Return the observation of plain numbers."""
        arrays = [np.asarray(values, dtype=np.float64) for values in (full, unit, fixed, wait)]
        return cls(arrays[0], arrays[1], arrays[2], arrays[3], migrating)

    def with_full(self, full: Sequence[float]) -> "Observation":
        """Return the observation with other M hat."""
        return replace(self, full=np.asarray(full, dtype=np.float64))

    @property
    def total(self) -> Array:
        """T hat = M hat + U + F, seconds per rank."""
        return self.full + self.unit + self.fixed


class History:
    """The newest observations, at most two windows of them."""

    def __init__(self, window: int) -> None:
        self.window = window
        self._kept: deque[Array] = deque(maxlen=2 * window)
        self._migrating: deque[bool] = deque(maxlen=2 * window)

    def add(self, observation: Observation) -> None:
        """Take one measured iteration."""
        seen = observation
        self._kept.append(np.stack([seen.full, seen.unit, seen.fixed, seen.wait]))
        self._migrating.append(seen.migrating)

    def resized(self, window: int) -> "History":
        """Return a history of another window with what is known so far."""
        other = History(window)
        other._kept.extend(self._kept)
        other._migrating.extend(self._migrating)
        return other

    def median(self, back: int = 0) -> Observation | None:
        """Return the medians over the newest window, or over the one `back` windows before; None: too few yet."""
        end = len(self._kept) - back * self.window
        return self._median(range(end - self.window, end)) if end >= self.window else None

    def latest(self) -> Observation | None:
        """Return the medians over what is known, a window at most; None: nothing is."""
        end = len(self._kept)
        return self._median(range(max(0, end - self.window), end)) if end else None

    def _median(self, chosen: range) -> Observation:
        stack = np.sort(np.stack([self._kept[i] for i in chosen]), axis=0)
        low, high = stack[(len(chosen) - 1) // 2], stack[len(chosen) // 2]
        full, unit, fixed, wait = (low + high) / 2
        return Observation(full, unit, fixed, wait, any(self._migrating[i] for i in chosen))
