"""What a figure of the page is made of: a table, a chart, and claims with a verdict each."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Verdict = Literal["holds", "does not hold", "undecided", "not measured"]
Cell = str | float | None


@dataclass(frozen=True)
class Claim:
    """One claim of the paper (or a target of ours) beside what was measured."""

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
    how: str  # emulated, real training, composed, simulated: in words
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    charts: Sequence[Chart]
    claims: Sequence[Claim]
    notes: Sequence[str] = field(default=())


def verdict(holds: bool, fails: bool) -> Verdict:
    """Return holds, does not hold, or undecided where neither is shown."""
    return "holds" if holds else "does not hold" if fails else "undecided"


def missing(text: str, paper: str) -> Claim:
    """Return a claim for which nothing was measured at this size."""
    return Claim(text, paper, "-", "not measured", "not part of this size: run without --quick")
