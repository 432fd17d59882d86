"""What the verdicts rest on: paired differences with confidence intervals, and epochs composed from measured parts."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heterotp_cli.bench.emulation import EPOCH_ITERATIONS

CONFIDENCE = 0.95
Results = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Interval:
    """A mean over paired seeds and its 95 % confidence interval."""

    mean: float
    low: float
    high: float
    count: int

    @property
    def above(self) -> bool:
        """Whether zero lies below the interval."""
        return self.low > 0

    @property
    def below(self) -> bool:
        """Whether zero lies above the interval."""
        return self.high < 0

    def points(self) -> str:
        """Return the interval in percentage points."""
        return f"{self.mean * 100:+.1f} points ({self.low * 100:+.1f} .. {self.high * 100:+.1f}, {self.count} seeds)"


def interval(values: Sequence[float]) -> Interval:
    """Return mean and interval by Student's t; of less than two values everything is possible."""
    from scipy.stats import t

    mean = statistics.fmean(values)
    if len(values) < 2:
        return Interval(mean, float("-inf"), float("inf"), len(values))
    half = float(t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    return Interval(mean, mean - half, mean + half, len(values))


def paired(results: Results, name: str, other: str, what: str) -> Interval | None:
    """Return the interval of what(name) - what(other) over the seeds that both have; None: none."""
    mine, theirs = (by_seed(results, each, what) for each in (name, other))
    both = sorted(mine.keys() & theirs.keys())
    return interval([mine[seed] - theirs[seed] for seed in both]) if both else None


def by_seed(results: Results, name: str, what: str) -> dict[int, float]:
    """Return a quantity of all trials of a name, by seed."""
    prefix = f"trial/{name}/"
    return {int(key.removeprefix(prefix)): result[what] for key, result in results.items() if key.startswith(prefix)}


def mean_of(results: Results, name: str, what: str) -> float | None:
    """Return the mean over seeds, None where there is none."""
    values = by_seed(results, name, what).values()
    return statistics.fmean(values) if values else None


def composed_epoch(result: Mapping[str, Any]) -> float:
    """Return seconds of an epoch of 782 iterations: the transition as measured, the rest in the steady state."""
    moving: Sequence[float] = result["transition"]
    return sum(moving) + (EPOCH_ITERATIONS - len(moving)) * float(result["steady"])
