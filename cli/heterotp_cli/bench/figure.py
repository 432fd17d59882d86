"""The parts of a figure on the page: a table, a chart, and claims with a verdict each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from heterotp_cli.bench.statistics import Interval, Span

Verdict = Literal["holds", "does not hold", "undecided", "not measured", "by construction"]
Level = Literal["emulated", "cpu", "gpu", "training"]  # kinds of evidence, which no verdict mixes
Cell = str | float | None
MISSING: dict[Level, str] = {  # why a claim has no result
    "emulated": "not part of this size, or not run: for lack of time",
    "cpu": "not run at this level: for lack of time",
    "gpu": "needs real GPUs: not run for lack of them",
    "training": "not part of this size, or not trained: for lack of time",
}


@dataclass(frozen=True)
class Claim:
    """One claim of the paper (or a target of this project) beside the measured value.

    A claim "by construction" follows from what was put in, so that no measurement could refute it: that is no verdict.
    Another claim beside it can fail.
    """

    text: str
    paper: str
    measured: str
    verdict: Verdict
    why: str
    level: Level = "emulated"


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
    command: str = ""  # that measures it again; "": `bench paper` with its name


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


def missing(text: str, paper: str, level: Level = "emulated") -> Claim:
    """Return a claim for which nothing was measured at this size or level."""
    return Claim(text, paper, "-", "not measured", MISSING[level], level)


def constructed(text: str, paper: str, measured: str, why: str) -> Claim:
    """Return a claim that follows from what was put in; why: what was."""
    return Claim(text, paper, measured, "by construction", f"{why}; the claim below it can fail")
