"""The measurements of the last iterations, by rank, on which decisions are made."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from heterotp_trainer.plans.unit_plan import Family

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Observation:
    """One measured iteration, or medians of several: seconds by rank, [e] each.

    See docs/algorithms.md, How a decision is made.
    """

    full: Array  # full-work matmul seconds, M hat
    unit: Array  # other work that moves with units, U
    fixed: Array  # F
    wait: Array  # W
    attention: Array  # attention's part of `unit`
    vocabulary: Array  # the vocabulary's part of `unit`; the rest is the FFN's
    pace: Array  # a probe's seconds over those at calibration; 0 without a probe
    aside: Array  # data and control: no plan changes them, but iterations contain them
    executed: Array  # matmul seconds as executed, M: of what was neither pruned nor migrated, and of what was received
    migrating: bool = False  # whether columns migrated: then `wait` contains their transfers

    @classmethod
    def of(
        cls,
        full: Sequence[float],
        unit: Sequence[float],
        fixed: Sequence[float],
        wait: Sequence[float],
        migrating: bool = False,
        *,
        attention: Sequence[float] = (),
        vocabulary: Sequence[float] = (),
        pace: Sequence[float] = (),
        aside: Sequence[float] = (),
        executed: Sequence[float] = (),
    ) -> "Observation":
        """Return the observation of lists of numbers; executed: as `full` where it is left out."""
        nothing = [0.0] * len(full)
        apart = (each or nothing for each in (attention, vocabulary, pace, aside))
        values = (full, unit, fixed, wait, *apart, executed or full)
        return cls.from_rows([np.asarray(each, dtype=np.float64) for each in values], migrating)

    @classmethod
    def from_rows(cls, rows: Sequence[Array], migrating: bool) -> "Observation":
        """Return the observation of arrays in the order of its fields."""
        full, unit, fixed, wait, attention, vocabulary, pace, aside, executed = rows
        return cls(full, unit, fixed, wait, attention, vocabulary, pace, aside, executed, migrating)

    @property
    def rows(self) -> list[Array]:
        """Its arrays in the order of its fields."""
        return [getattr(self, field.name) for field in fields(self) if field.name != "migrating"]

    def with_full(self, full: Sequence[float] | Array) -> "Observation":
        """Return the observation with other M hat, of an iteration in which nothing was reduced."""
        other = np.asarray(full, dtype=np.float64)
        return replace(self, full=other, executed=other)

    @property
    def as_executed(self) -> "Observation":
        """The observation with M in place of M hat: the paper's measured times, which depend on the plan in force."""
        return replace(self, full=self.executed)

    def unit_of(self, family: Family) -> Array:
        """Return a family's part of `unit`, seconds by rank: [e]."""
        apart: dict[Family, Array] = {"heads": self.attention, "vocab": self.vocabulary}
        rest = np.maximum(self.unit - self.attention - self.vocabulary, 0.0)  # medians need not add up
        return apart.get(family, rest)

    @property
    def total(self) -> Array:
        """T hat = M hat + U + F, seconds by rank: [e]."""
        return self.full + self.unit + self.fixed


class History:
    """The newest observations, at most two windows; `count` is the number of all that were added."""

    def __init__(self, window: int) -> None:
        self.window, self.count = window, 0
        self._kept: deque[Observation] = deque(maxlen=2 * window)
        self._medians: dict[int, Observation] = {}  # by windows back

    def add(self, observation: Observation) -> None:
        """Add one measured iteration."""
        self._kept.append(observation)
        self._medians.clear()
        self.count += 1

    def resized(self, window: int) -> "History":
        """Return a history of another window with the same observations."""
        return self._with(window, self._kept)

    def rebased(self, converted: Callable[[Observation], Observation]) -> "History":
        """Return a history of converted observations: those of the same iterations under other shares."""
        return self._with(self.window, map(converted, self._kept))

    def _with(self, window: int, observations) -> "History":  # type: ignore[no-untyped-def]
        other = History(window)
        other._kept.extend(observations)
        other.count = self.count
        return other

    def last(self, count: int) -> list[Observation]:
        """Return the newest observations, oldest first, `count` at most."""
        return list(self._kept)[-count:] if count > 0 else []

    def median(self, back: int = 0) -> Observation | None:
        """Return the medians of the newest window, or of the one `back` windows before; None: it is not full."""
        end = len(self._kept) - back * self.window
        if end < self.window:
            return None
        if back not in self._medians:
            self._medians[back] = self._median(range(end - self.window, end))
        return self._medians[back]

    def latest(self) -> Observation | None:
        """Return the medians of the newest observations, at most a window; None: there are none."""
        end = len(self._kept)
        return self._median(range(max(0, end - self.window), end)) if end else None

    def _median(self, chosen: range) -> Observation:
        every = [self._kept[i] for i in chosen]
        stack = np.sort(np.stack([np.stack(each.rows) for each in every]), axis=0)
        low, high = stack[(len(chosen) - 1) // 2], stack[len(chosen) // 2]
        return Observation.from_rows((low + high) / 2, any(each.migrating for each in every))
