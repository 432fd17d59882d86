"""The history of a job while it grows, in bounded memory: columns of the plots, and each rank's recent times.

Entries are as in history.jsonl, or as cluster_feed.py makes them. No clock, no files.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from heterotp_cli.page.content import MOST_CELLS, MOST_COLUMNS, PHASES, lost_seconds, short

FEWEST_COLUMNS = 12
MOST_SAMPLES = 256  # iteration times that a column keeps for its median
RECENT = 20  # iterations: the weight of a new one in a rank's mean time is at least 1 / RECENT
MOST_RANKS = 16_384
TIMED = (*PHASES, "other")  # `other`: all computation but matrix products, where no more is known
Entry = Mapping[str, Any]
Line = list[float | None]


@dataclass
class Column:
    """Iterations `first` to `last`: `count` entries.

    chi: largest of each rank, None where none was computed in these iterations; before: the last one known before them.
    lost: seconds that others lost to each rank, and the time of the iterations of which that is known.
    """

    first: int
    last: int
    before: Line
    count: int = 0
    seconds: list[float] = field(default_factory=list)
    loss: float | None = None
    accuracy: float | None = None
    chi: Line = field(default_factory=list)
    lost: list[tuple[float, float]] = field(default_factory=list)

    def add(self, entry: Entry, chi: Sequence[float | None]) -> None:
        """Add the next iteration."""
        self.last, self.count = int(entry["iteration"]), self.count + 1
        seconds = number(entry.get("iterationSeconds"))
        if entry.get("measured") and seconds is not None:
            self.seconds = _thinned([*self.seconds, seconds])
        self.loss = _newer(self.loss, number(entry.get("loss")))
        self.accuracy = _newer(self.accuracy, number(entry.get("accuracy")))
        self.chi = _largest(self.chi, chi)
        self.lost = _sums(self.lost, [lost_seconds([entry], rank) for rank in range(len(chi))])

    def merged(self, later: "Column") -> "Column":
        """Return one column of this and the next one."""
        return Column(
            self.first,
            later.last,
            self.before,
            self.count + later.count,
            _thinned([*self.seconds, *later.seconds]),
            _newer(self.loss, later.loss),
            _newer(self.accuracy, later.accuracy),
            _largest(self.chi, later.chi),
            _sums(self.lost, later.lost),
        )

    @property
    def median(self) -> float | None:
        """Median of the measured times, seconds; None where none was measured."""
        return sorted(self.seconds)[len(self.seconds) // 2] if self.seconds else None

    def lost_share(self, rank: int) -> float | None:
        """Return the part of the column's time that others lost to a rank; None where it is not known."""
        lost, took = self.lost[rank] if rank < len(self.lost) else (0.0, 0.0)
        return short(lost / took) if took else None

    def known_chi(self, ranks: int) -> Line:
        """Return chi of each rank, the last one known where none was computed."""
        own, before = (_padded(line, ranks) for line in (self.chi, self.before))
        return [mine if mine is not None else earlier for mine, earlier in zip(own, before, strict=True)]


class Columns:
    """At most `most` columns of equally many iterations; pairs are merged where they would be more.

    `epoch` rises whenever columns change that are not the last one: a reader then needs all of them.
    """

    def __init__(self, ranks: int, most: int | None = None) -> None:
        self.ranks = max(0, min(MOST_RANKS, ranks))
        wanted = most or min(MOST_COLUMNS, max(FEWEST_COLUMNS, MOST_CELLS // max(1, self.ranks)))
        self._most = wanted - wanted % 2
        self._stride, self.epoch = 1, 0
        self.columns: list[Column] = []

    def __len__(self) -> int:
        return len(self.columns)

    def add(self, entry: Entry) -> None:
        """Add an iteration; one that was there replaces it and all later ones, as after a resume."""
        iteration = int(entry["iteration"])
        if self.columns and iteration <= self.columns[-1].last:
            self._drop(iteration)
        if not self.columns or self.columns[-1].count >= self._stride:
            self._make_room()
        if not self.columns or self.columns[-1].count >= self._stride:
            before = self.columns[-1].known_chi(self.ranks) if self.columns else []
            self.columns.append(Column(iteration, iteration, before))
        self.columns[-1].add(entry, [number(row.get("chi")) for row in rows_of(entry)[: self.ranks]])

    def _drop(self, iteration: int) -> None:
        self.columns = [column for column in self.columns if column.first < iteration]
        self.epoch += 1
        if self.columns:
            self.columns[-1].last = min(self.columns[-1].last, iteration - 1)

    def _make_room(self) -> None:
        if len(self.columns) < self._most:
            return
        pairs = zip(self.columns[::2], self.columns[1::2], strict=True)
        self.columns = [one.merged(other) for one, other in pairs]
        self._stride, self.epoch = self._stride * 2, self.epoch + 1

    def document(self, first: int) -> dict[str, Any]:
        """Return the columns from number `first` on, in the keys of the page."""
        shown = self.columns[first:]
        lines = [column.known_chi(self.ranks) for column in shown]
        return {
            "iteration": [column.last for column in shown],
            "seconds": [column.median for column in shown],
            "loss": [column.loss for column in shown],
            "accuracy": [column.accuracy for column in shown],
            "chi": [[_short(line[rank]) for line in lines] for rank in range(self.ranks)],
            "lost": [[column.lost_share(rank) for column in shown] for rank in range(self.ranks)],
        }


class RankTimes:
    """Mean seconds of each rank by phase, in which about the newest RECENT measured iterations weigh."""

    def __init__(self, ranks: int) -> None:
        self._ranks, self._count = ranks, 0
        self._means: list[dict[str, float]] = [{} for _ in range(ranks)]

    def add(self, entry: Entry) -> None:
        """Add an iteration, where it was measured."""
        if not entry.get("measured"):
            return
        self._count += 1
        weight = 1 / min(self._count, RECENT)
        for means, row in zip(self._means, rows_of(entry), strict=False):
            for phase in TIMED:
                value = number(row.get(phase))
                if value is not None:
                    before = means.get(phase, value)
                    means[phase] = before + weight * (value - before)

    def of(self, rank: int) -> dict[str, float | None]:
        """Return a rank's seconds by phase; None where nothing was measured."""
        means = self._means[rank] if rank < len(self._means) else {}
        return {phase: means.get(phase) for phase in TIMED}


def rows_of(entry: Entry) -> list[Mapping[str, Any]]:
    """Return the rows of an entry's ranks; an empty one for what is no row."""
    rows = entry.get("ranks")
    return [row if isinstance(row, dict) else {} for row in rows] if isinstance(rows, list) else []


def number(value: object) -> float | None:
    """Return a finite number; None for all else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None


def _newer(old: float | None, new: float | None) -> float | None:
    return old if new is None else new


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _thinned(values: list[float]) -> list[float]:
    """Return the values, or every second one of them in order of size where they are too many."""
    return values if len(values) <= MOST_SAMPLES else sorted(values)[::2]


def _padded(line: Sequence[float | None], length: int) -> Line:
    return [*line[:length], *[None] * (length - len(line))]


def _sums(one: list[tuple[float, float]], other: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the sums of two pairs of each rank."""
    pairs = zip_longest(one, other, fillvalue=(0.0, 0.0))
    return [(a + c, b + d) for (a, b), (c, d) in pairs]


def _largest(one: Sequence[float | None], other: Sequence[float | None]) -> Line:
    """Return the larger of two values of each rank, None where both are absent."""
    length = max(len(one), len(other))
    pairs = zip(_padded(one, length), _padded(other, length), strict=True)
    return [a if b is None else b if a is None else max(a, b) for a, b in pairs]
