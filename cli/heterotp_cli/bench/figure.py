"""The parts of a figure on the page: a table, a chart, and claims with a verdict each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from heterotp_cli.bench.statistics import Interval, Span

Verdict = Literal["holds", "does not hold", "undecided", "not measured"]
Cell = str | float | None


@dataclass(frozen=True)
class Claim:
    """One claim of the paper (or a target of this project) beside the measured value."""

    text: str
    paper: str
    measured: str
    verdict: Verdict
    why: str


@dataclass(frozen=True)
class Series:
    """One line of a chart; `dashed`: not measured here (the paper's own, or computed)."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    dashed: bool = False


@dataclass(frozen=True)
class Chart:
    """Lines over a number."""

    title: str
    x: str
    y: str
    series: Sequence[Series]
    log_x: bool = False


@dataclass(frozen=True)
class Figure:
    """One figure or table of the paper."""

    name: str
    title: str
    source: str
    how: str  # emulated, real training, composed or simulated
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    charts: Sequence[Chart]
    claims: Sequence[Claim]
    notes: Sequence[str] = field(default=())


def verdict(holds: bool, fails: bool) -> Verdict:
    """Return holds, does not hold, or undecided where the data show neither."""
    return "holds" if holds else "does not hold" if fails else "undecided"


def judged(found: Interval | Span, least: float = -inf, most: float = inf) -> Verdict:
    """Return holds where all of an interval lies within bounds, does not hold where all of it lies outside."""
    return verdict(least <= found.low and found.high <= most, found.high < least or found.low > most)


def together(parts: Mapping[str, Verdict]) -> tuple[Verdict, str]:
    """Return the verdict on parts that must all hold, and text naming the parts that do not."""
    others = {text: word for text, word in parts.items() if word != "holds"}
    if not others:
        return "holds", "all hold: " + "; ".join(parts)
    result = verdict(False, "does not hold" in others.values())
    return result, "; ".join(f"{word}: {text}" for text, word in others.items())


def missing(text: str, paper: str) -> Claim:
    """Return a claim for which nothing was measured at this size."""
    return Claim(text, paper, "-", "not measured", "not part of this size: run without --quick")
