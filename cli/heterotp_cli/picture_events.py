"""The part of report.png that shows what happened: a strip of decisions and injections, shares of the work, chi."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from numpy.typing import NDArray

from heterotp_cli.follow import History

Array = NDArray[np.float64]
DECISION, INK, OTHERS = "#5b6270", "#30343b", "#c3c8d0"
RANK_COLOURS = ("#2f6fb3", "#c8452f", "#3a8f5c", "#e8a33d", "#6b4fa0", "#2aa5a0", "#c45a9b", "#7a5230")
MOST_COLOURED = len(RANK_COLOURS)
MOST_LANES = 8  # injected ranks that have a lane of their own
POINTS_WIDE, CHARACTER, GAP = 380.0, 4.6, 5.0  # of a panel, of a digit and between labels, in points
MOST_LINES = 20  # decisions that are also marked in the panel of iteration times


@dataclass(frozen=True)
class Span:
    """Iterations [start, stop) in which a rank was slowed by chi."""

    rank: int
    chi: float
    start: int
    stop: int


def values(history: History, rank: int, key: str, absent: float = np.nan) -> Array:
    """Return what a rank's entries hold under a key, per iteration; `absent` where they hold nothing."""
    found = [each["ranks"][rank].get(key) if rank < len(each.get("ranks", ())) else None for each in history.entries]
    return np.asarray([absent if value is None else value for value in found], dtype=float)


def work_shares(history: History, rank: int) -> Array:
    """Return the share of all work that a rank computes, 0..1: of its units, less what it gives away, plus received."""
    kept = 1 - values(history, rank, "pruned", 0.0) - values(history, rank, "migrated", 0.0)
    return values(history, rank, "share") * kept + values(history, rank, "received", 0.0)


def has_shares(history: History) -> bool:
    """Return whether the history is of a version that writes shares."""
    return any("share" in rank for entry in history.entries for rank in entry.get("ranks", ()))


def spans(history: History, ranks: int) -> list[Span]:
    """Return the injections, by rank and beginning."""
    end = history.iterations[-1] + 1 if len(history) else 0
    found = []
    for rank in range(ranks):
        chis = values(history, rank, "injected", 1.0)
        starts = [0, *(np.flatnonzero(np.diff(chis)) + 1), len(chis)]
        for first, last in pairwise(starts):
            if first < last and chis[first] > 1:
                stop = history.iterations[last] if last < len(chis) else end
                found.append(Span(rank, float(chis[first]), history.iterations[first], stop))
    return found


def coloured(history: History, ranks: int) -> dict[int, str]:
    """Return the colours of ranks; of more than MOST_COLOURED those that were slowed, slow, or changed their share."""
    order = list(range(ranks))
    if ranks > MOST_COLOURED:
        order.sort(key=lambda rank: (-_change(history, rank), rank))
    return {rank: RANK_COLOURS[place] for place, rank in enumerate(sorted(order[:MOST_COLOURED]))}


def _change(history: History, rank: int) -> float:
    """Return how far share, chi and injections of a rank ranged over the run."""
    known = (work_shares(history, rank), values(history, rank, "chi"), values(history, rank, "injected", 1.0))
    return sum(float(np.ptp(each[np.isfinite(each)])) for each in known if np.isfinite(each).any())


@dataclass
class _Group:
    """Decisions under one label; `start` is the place of its first character."""

    start: float
    numbers: list[int]

    @property
    def text(self) -> str:
        first, last = self.numbers[0], self.numbers[-1]
        if len(self.numbers) == 1:
            return str(first)
        return f"{first}-{last}" if last - first + 1 == len(self.numbers) else f"{len(self.numbers)}x"

    def end(self, point: float) -> float:
        """Return where the next label may begin; point: what a point is on the axis."""
        return self.start + (len(self.text) * CHARACTER + GAP) * point


def labels(made: Sequence[tuple[int, int]], start: float, stop: float) -> list[tuple[float, str]]:
    """Return places and texts of labels that do not overlap, for decisions (iteration, number) on an axis from start to
    stop: a number, `3-7` for consecutive ones that are too close, `5x` for five that are not consecutive.
    """
    point = (stop - start) / POINTS_WIDE
    groups: list[_Group] = []
    for iteration, number in made:
        if groups and iteration < groups[-1].end(point):
            groups[-1].numbers.append(number)
        else:
            groups.append(_Group(float(iteration), [number]))
    while groups and groups[-1].end(point) > stop:
        last = groups[-1]
        last.start -= last.end(point) - stop
        if len(groups) == 1 or groups[-2].end(point) <= last.start:
            break
        groups[-2].numbers += groups.pop().numbers
    return [(group.start, group.text) for group in groups]


def lane_count(found: Sequence[Span]) -> int:
    """Return the lanes below the one of decisions: one more than MOST_LANES where ranks share the last one."""
    return min(len({span.rank for span in found}), MOST_LANES + 1)


def lanes_of(found: Sequence[Span]) -> list[int]:
    """Return the ranks that have a lane of their own, ascending: those that were slowed for longest."""
    total: dict[int, int] = {}
    for span in found:
        total[span.rank] = total.get(span.rank, 0) + span.stop - span.start
    return sorted(sorted(total, key=lambda rank: (-total[rank], rank))[:MOST_LANES])


def draw_strip(
    axes: Axes, made: Sequence[tuple[int, int]], found: Sequence[Span], colours: dict[int, str], limits: Sequence[float]
) -> None:
    """Draw a tick per decision with its number, and below it a lane per rank that injections slow."""
    lanes = lanes_of(found)
    start, stop = limits
    axes.vlines([iteration for iteration, _ in made], -0.05, 0.42, color=DECISION, linewidth=0.9)
    for place, text in labels(made, start, stop):
        axes.text(place, -0.14, text, fontsize=7.5, color=DECISION, va="bottom", ha="left")
    for span in found:
        if span.rank in lanes:
            _bar(axes, span, lanes.index(span.rank) + 1, colours.get(span.rank, OTHERS), stop - start)
        else:
            axes.broken_barh([(span.start, span.stop - span.start)], (len(lanes) + 0.64, 0.72), color=OTHERS)
    names = ["decisions" if made else "no decision", *(f"slowed: rank {rank}" for rank in lanes)]
    if others := len({span.rank for span in found}) - len(lanes):
        names.append(f"{others} other ranks")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.9)  # lanes from the top down
    axes.tick_params(axis="y", length=0, labelsize=8, colors=INK)
    axes.tick_params(axis="x", labelbottom=False, colors=INK)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_xlim(start, stop)


def _bar(axes: Axes, span: Span, lane: int, colour: str, width: float) -> None:
    axes.broken_barh([(span.start, span.stop - span.start)], (lane - 0.36, 0.72), color=colour, linewidth=0)
    text = f"{span.chi:g}x"
    if (span.stop - span.start) / width * POINTS_WIDE > (len(text) + 1) * CHARACTER:
        middle, ink = (span.start + span.stop) / 2, INK if colour == OTHERS else "white"
        axes.text(middle, lane, text, fontsize=7, color=ink, ha="center", va="center_baseline")


def draw_ranks(axes: Axes, x: Array, lines: Sequence[Array], colours: dict[int, str]) -> None:
    """Draw a line per rank; ranks without a colour are grey, equal lines stay visible below each other."""
    for rank, line in enumerate(lines):
        if rank not in colours:
            axes.plot(x, line, color=OTHERS, linewidth=1.0)
    for place, (rank, colour) in enumerate(colours.items()):
        width = 4.0 - 2.6 * place / max(1, len(colours) - 1)
        axes.plot(x, lines[rank], color=colour, linewidth=width, label=f"rank {rank}")


def rank_legend(figure: SubFigure, axes: Axes, ranks: int) -> None:
    """Name the ranks below the panels that show them."""
    handles, names = axes.get_legend_handles_labels()
    others = ranks - len(handles)
    if others:
        handles.append(axes.lines[0])
        names.append(f"{others} other ranks")
    figure.legend(handles, names, loc="outside lower left", ncols=len(names), frameon=False, fontsize=8.5)
