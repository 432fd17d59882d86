"""report.png: iteration time, loss and accuracy, and what every rank did with its time."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from numpy.typing import NDArray

from heterotp_cli.follow import History

# one meaning, one colour, in all pictures and in the live table
COLOURS = {
    "matmul": "#2f6fb3",
    "unit": "#7fb2e0",
    "fixed": "#8a8f98",
    "data": "#b9a7d6",
    "control": "#6b4fa0",
    "wait": "#e8a33d",
}
INK, LIMIT, LOSS, ACCURACY, TIME = "#30343b", "#c8452f", "#6b4fa0", "#3a8f5c", "#2f6fb3"
MOST_POINTS, MOST_RANKS, COLUMNS = 160, 8, 4
Array = NDArray[np.float64]


def draw(history: History, report: dict[str, Any], target: Path) -> None:
    """Write the picture; the history has at least two iterations."""
    matplotlib.use("Agg")
    timed = steady(history)
    edges = bins(len(timed))
    x = medians(np.asarray(timed.iterations, dtype=float), edges)
    chosen = slowest(report["ranks"], MOST_RANKS)
    lines = max(1, -(-len(chosen) // COLUMNS))
    figure = Figure(figsize=(13, 4.6 + 2.7 * lines), layout="constrained", facecolor="white")
    top, bottom = figure.subfigures(2, 1, squeeze=False, height_ratios=[4.0, 0.4 + 2.7 * lines])[:, 0]
    left, right = top.subplots(1, 2)
    _iteration_time(left, x, timed, edges, report)
    _learning(right, history, report)
    stacks = [[medians(series(timed, rank, p), edges) * 1e3 for p in COLOURS] for rank in chosen]
    _all_ranks(bottom, x, stacks, [report["ranks"][rank] for rank in chosen])
    figure.suptitle(title(report), x=0.01, ha="left", fontsize=14, fontweight="bold", color=INK)
    figure.savefig(target, dpi=110)


def title(report: dict[str, Any]) -> str:
    """Return the headline of a picture."""
    emulated = ", emulated devices" if report["emulated"] else ""
    done = f"{report['state']} after {report['iterations']} iterations"
    return f"{report['job']}: {done} on {len(report['ranks'])} ranks{emulated}"


def bins(length: int, most: int = MOST_POINTS) -> list[slice]:
    """Cut a history into at most `most` slices of about equal length, of five iterations or more where it can."""
    # a median of five hides single iterations with an evaluation or a checkpoint, which tell nothing about ranks
    count = min(most, max(2, length // 5))
    cuts = np.linspace(0, length, count + 1).round().astype(int)
    return [slice(a, b) for a, b in pairwise(cuts)]


def medians(values: Array, edges: Sequence[slice]) -> Array:
    """Return the median of every slice."""
    return np.asarray([np.median(values[edge]) for edge in edges])


def slowest(ranks: Sequence[dict[str, Any]], most: int) -> list[int]:
    """Return the positions of at most `most` ranks that compute longest, in rank order."""
    order = sorted(range(len(ranks)), key=lambda i: -(ranks[i].get("computeSeconds") or 0.0))
    return sorted(order[:most])


def series(history: History, rank: int, phase: str) -> Array:
    """Return one rank's seconds in a phase, per iteration."""
    return np.asarray(
        [e["ranks"][rank].get(phase) or 0.0 if rank < len(e.get("ranks", ())) else 0.0 for e in history.entries]
    )


def evaluations(history: History, report: dict[str, Any]) -> list[tuple[int, float]]:
    """Return iteration and test accuracy in percent, where it changed (every line repeats the last one).

    The last one is in the report alone: no iteration comes after it.
    """
    points: list[tuple[int, float]] = []
    for iteration, entry in zip(history.iterations, history.entries, strict=True):
        value = entry.get("accuracy")
        if value is not None and (not points or points[-1][1] != value * 100):
            points.append((iteration, value * 100))
    last = report.get("testAccuracy")
    if last is not None and report["iterations"] > (points[-1][0] if points else 0):
        points.append((report["iterations"], last * 100))
    return points


def steady(history: History) -> History:
    """Return the history without warm-up, evaluation and checkpoint iterations, where enough is left."""
    kept = [pair for pair in zip(history.iterations, history.entries, strict=True) if pair[1].get("measured", True)]
    if len(kept) < 2:
        return history
    return History(tuple(i for i, _ in kept), tuple(e for _, e in kept))


def _tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e6e8eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=9)
    axes.margins(x=0)


def _iteration_time(axes: Axes, x: Array, history: History, edges: Sequence[slice], report: dict[str, Any]) -> None:
    times = np.asarray([e.get("iterationSeconds") or np.nan for e in history.entries]) * 1e3
    axes.plot(history.iterations, times, color=TIME, alpha=0.25, linewidth=0.8)
    axes.plot(x, medians(times, edges), color=TIME, linewidth=1.8, label="iteration")
    limit = report.get("limitIterationSeconds")
    if limit:
        axes.axhline(
            limit * 1e3,
            color=LIMIT,
            linestyle="--",
            linewidth=1.4,
            label=f"fluid limit (last window) {limit * 1e3:.0f} ms",
        )
    # single outliers must not flatten the rest
    axes.set_ylim(0, 1.35 * max(float(np.nanpercentile(times, 90)), (limit or 0.0) * 1e3))
    axes.set_title("Iteration time", loc="left", fontsize=11, color=INK)
    axes.set_xlabel("iteration")
    axes.set_ylabel("milliseconds")
    axes.legend(frameon=False, fontsize=9, loc="upper right", ncols=2)
    _tidy(axes)


def _learning(axes: Axes, history: History, report: dict[str, Any]) -> None:
    losses = np.asarray([np.nan if e.get("loss") is None else e["loss"] for e in history.entries], dtype=float)
    axes.plot(history.iterations, losses, color=LOSS, linewidth=1.2)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("training loss", color=LOSS)
    axes.set_xlabel("iteration")
    axes.set_title("Loss and accuracy", loc="left", fontsize=11, color=INK)
    _tidy(axes)
    known = evaluations(history, report)
    if not known:
        return
    other = axes.twinx()
    other.plot(*zip(*known, strict=True), color=ACCURACY, marker="o", markersize=3, linewidth=1.4)
    other.annotate(
        f"{known[-1][1]:.1f} %", known[-1], xytext=(-4, -14), textcoords="offset points", ha="right", color=ACCURACY
    )
    other.set_ylim(0, 102)
    other.margins(x=0)
    other.set_ylabel("test accuracy, %", color=ACCURACY)
    other.spines[["top", "left"]].set_visible(False)
    other.tick_params(colors=INK, labelsize=9)


def _all_ranks(figure: SubFigure, x: Array, stacks: Sequence[Sequence[Array]], ranks: Sequence[dict[str, Any]]) -> None:
    shape = max(1, -(-len(ranks) // COLUMNS)), min(COLUMNS, len(ranks))
    grid = figure.subplots(*shape, sharex=True, sharey=True, squeeze=False)
    highest = max(float(np.percentile(np.sum(stack, axis=0), 95)) for stack in stacks)
    for axes, rank, stack in zip(grid.flat, ranks, stacks, strict=False):
        axes.stackplot(x, *stack, colors=list(COLOURS.values()), labels=list(COLOURS), linewidth=0)
        axes.set_title(rank_title(rank), loc="left", fontsize=10, color=INK)
        axes.set_ylim(0, 1.15 * highest)
        _tidy(axes)
    for axes in grid.flat[len(ranks) :]:
        axes.set_visible(False)
    for axes in grid[:, 0]:
        axes.set_ylabel("milliseconds")
    for axes in grid[-1, :]:
        axes.set_xlabel("iteration")
    handles, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=len(labels), frameon=False, fontsize=9)
    figure.suptitle("Where each rank's iteration goes", x=0.01, ha="left", fontsize=11, color=INK)


def rank_title(rank: dict[str, Any]) -> str:
    """Return the title of one rank's panel."""
    share, speed = rank.get("share"), rank.get("relativeSpeed")
    parts = [f"rank {rank['rank']} ({rank['group']})"]
    if share is not None:
        parts.append(f"{share * 100:.0f} % of the work")
    if speed is not None:
        parts.append(f"speed {speed:.2f}")
    return ", ".join(parts)
