"""The basis of the verdicts: differences of paired seeds and ratios of measured times, each with its interval."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

from heterotp_cli.bench.emulation import EPOCH_ITERATIONS, VIT_1B

CONFIDENCE = 0.95
COVERAGE = 0.93  # least that the interval of a median covers, where there are samples enough: 5 reach 0.9375
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

    def plain(self) -> str:
        """Return the interval as numbers without a unit."""
        return f"{self.mean:+.3f} ({self.low:+.3f} .. {self.high:+.3f}, {self.count} seeds)"


@dataclass(frozen=True)
class Span:
    """A quantity that follows from medians of times, and its interval; one point where no noise is known."""

    value: float
    low: float
    high: float

    def mapped(self, how: Callable[[float], float]) -> "Span":
        """Return the span under a monotone function."""
        low, high = sorted((how(self.low), how(self.high)))
        return Span(how(self.value), low, high)

    def emulated(self, form: str, unit: str = "") -> str:
        """Return the span as text, marked as measured on emulated devices."""
        noise = f"{form.format(self.low)} .. {form.format(self.high)}" if self.low < self.high else "noise unknown"
        return f"{form.format(self.value)}{unit} ({noise}, emulated)"


def interval(values: Sequence[float]) -> Interval:
    """Return mean and interval by Student's t; unbounded for less than two values."""
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


def coverage(count: int, left_out: int) -> float:
    """Return how often a median lies between two order statistics of `count` samples, `left_out` beyond either."""
    return 1 - 2 * sum(comb(count, number) for number in range(left_out + 1)) * 0.5**count


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """Return the narrowest symmetric pair of order statistics that covers the median, else the outermost.

    Free of any distribution, as long as the samples are independent.
    """
    ordered, count = sorted(samples), len(samples)
    left_out = max((n for n in range(count // 2) if coverage(count, n) >= COVERAGE), default=0)
    return ordered[left_out], ordered[count - 1 - left_out]


def runs_of(results: Results, key: str) -> list[Mapping[str, Any]]:
    """Return what each gang run measured of a step, as far as they were run; keys: `KEY`, `KEY#1`, ..."""
    found: list[Mapping[str, Any]] = []
    while (each := results.get(repeat_key(key, len(found)))) is not None:
        found.append(each)
    return found


def repeat_key(key: str, repeat: int) -> str:
    """Return the key of one of several runs of a step."""
    return f"{key}#{repeat}" if repeat else key


def across(runs: Sequence[Span]) -> Span:
    """Return the mean of several gang runs and its interval by Student's t; of a single run that of its iterations."""
    if len(runs) == 1:
        return runs[0]
    found = interval([each.value for each in runs])
    return Span(found.mean, found.low, found.high)


def steady_of(results: Results, key: str) -> Span | None:
    """Return seconds of an iteration of a step in its steady state, over its runs; None where there are none."""
    runs = runs_of(results, key)
    return across([steady(each) for each in runs]) if runs else None


def steady(result: Mapping[str, Any]) -> Span:
    """Return seconds of an iteration in a step's steady state."""
    median = float(result["steady"])
    return Span(median, *median_interval(result.get("samples") or [median]))


def composed_epoch(result: Mapping[str, Any]) -> Span:
    """Return seconds of an epoch of 782 iterations: the transition as measured, the rest in the steady state."""
    moving: Sequence[float] = result["transition"]
    return steady(result).mapped(lambda seconds: sum(moving) + (EPOCH_ITERATIONS - len(moving)) * seconds)


def composed_turn(result: Mapping[str, Any], iterations: int) -> float:
    """Return the mean seconds of so many iterations: the transition as measured, the rest in the steady state."""
    moving = [float(each) for each in result["transition"]][:iterations]
    return (sum(moving) + (iterations - len(moving)) * float(result["steady"])) / iterations


def epoch(results: Results, step: str, model: str = VIT_1B.name) -> Span | None:
    """Return seconds of a composed epoch of a step of a model's gang, None where it was not measured."""
    runs = runs_of(results, f"time/{model}/{step}")
    return across([composed_epoch(each) for each in runs]) if runs else None


def ratio(mine: Span, other: Span) -> Span:
    """Return the ratio to another span, with the widest interval of their ends."""
    return Span(mine.value / other.value, mine.low / other.high, mine.high / other.low)


def epoch_ratio(results: Results, step: str, other: str, model: str = VIT_1B.name) -> Span | None:
    """Return the ratio of two steps' composed epochs, None where one was not measured."""
    mine, its = epoch(results, step, model), epoch(results, other, model)
    return None if mine is None or its is None else ratio(mine, its)


def largest(spans: Sequence[Span]) -> Span:
    """Return the largest of several and its interval."""
    return Span(max(s.value for s in spans), max(s.low for s in spans), max(s.high for s in spans))


def steady_ratio(results: Results, step: str, other: str, model: str) -> Span | None:
    """Return the ratio of two steps' steady iterations, None where one was not measured."""
    mine, its = (steady_of(results, f"time/{model}/{each}") for each in (step, other))
    return None if mine is None or its is None else ratio(mine, its)
