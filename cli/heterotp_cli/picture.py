"""report.png: iteration time and decisions, loss and accuracy, the time of every rank by phase, measured costs."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from numpy.typing import NDArray

from heterotp_cli.follow import History
from heterotp_cli.picture_events import (
    DECISION,
    INK,
    MOST_LINES,
    Span,
    coloured,
    draw_ranks,
    draw_strip,
    has_shares,
    lane_count,
    rank_legend,
    spans,
    values,
    work_shares,
)

# one meaning, one colour, in all pictures and in the live table
COLOURS = {
    "matmul": "#2f6fb3",
    "unit": "#7fb2e0",
    "fixed": "#8a8f98",
    "migrate": "#c45a9b",
    "data": "#b9a7d6",
    "control": "#6b4fa0",
    "wait": "#e8a33d",
}
LIMIT, LOSS, ACCURACY, TIME = "#c8452f", "#6b4fa0", "#3a8f5c", "#2f6fb3"
FASTEST, SLOWEST = COLOURS["unit"], "#c8452f"
TIME_HEIGHT, SHARE_HEIGHT = 3.6, 2.8  # inches
MOST_ABOVE = 92.0  # percent of accuracy: the figure of a higher one stands below its line
LINKS = {
    "broadcast": "#2f6fb3",
    "reduce": "#6b4fa0",
    "piece": "#3a8f5c",
}  # kinds of transfers, by their names in cost_calibration.json
MOST_POINTS, MOST_RANKS, COLUMNS, MOST_CLASSES = 160, 8, 4, 4
Array = NDArray[np.float64]


def draw(history: History, report: dict[str, Any], target: Path, calibration: dict[str, Any] | None = None) -> None:
    """Write the picture; the history has at least two iterations.

    calibration: the content of cost_calibration.json, if there is one.
    """
    matplotlib.use("Agg")
    timed = steady(history)
    edges = bins(len(timed))
    x = medians(np.asarray(timed.iterations, dtype=float), edges)
    chosen = slowest(report["ranks"], MOST_RANKS)
    happened = events(history, timed, report)
    heights = [happened.height, 0.4 + 2.9 * max(1, -(-len(chosen) // COLUMNS))]
    if calibration is not None and measured_ranks(calibration):
        heights.append(2.9)
    figure = Figure(figsize=(13, 0.3 + sum(heights)), layout="constrained", facecolor="white")
    top, bottom, *last = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    _over_the_run(top, x, timed, edges, history, report, happened)
    stacks = [[medians(series(timed, rank, p), edges) * 1e3 for p in COLOURS] for rank in chosen]
    _all_ranks(bottom, x, stacks, [report["ranks"][rank] for rank in chosen])
    for row in last:
        _calibration(row, calibration or {})
    figure.suptitle(title(report), x=0.01, ha="left", fontsize=14, fontweight="bold", color=INK)
    figure.savefig(target, dpi=110)


@dataclass(frozen=True)
class Events:
    """What happened in a run, and how high the panels are that show it, in inches."""

    made: list[tuple[int, int]]  # decisions: iteration and number
    slowed: list[Span]
    shares: bool  # whether the history has shares and chi

    @property
    def strip(self) -> float:
        """Height of the strip of decisions and injections."""
        return 0.45 + 0.2 * lane_count(self.slowed)

    @property
    def height(self) -> float:
        """Height of all panels over the run."""
        return TIME_HEIGHT + self.strip + (SHARE_HEIGHT if self.shares else 0.0)


def events(history: History, timed: History, report: dict[str, Any]) -> Events:
    """Return the decisions after the first measured iteration, and the injections."""
    made = [each for each in decisions(history) if each[0] > timed.iterations[0]]
    return Events(made, spans(history, len(report["ranks"])), has_shares(history))


def _over_the_run(
    figure: SubFigure,
    x: Array,
    timed: History,
    edges: Sequence[slice],
    history: History,
    report: dict[str, Any],
    happened: Events,
) -> None:
    """Draw the panels whose axis is the run: on the left times, events and shares, on the right loss and chi."""
    heights = [TIME_HEIGHT, happened.strip, *([SHARE_HEIGHT] if happened.shares else [])]
    grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
    limits = (float(history.iterations[0]), float(history.iterations[-1]))
    ranks = len(report["ranks"])
    colours = coloured(history, ranks) if happened.shares else {}
    left = figure.add_subplot(grid[0, 0])
    _iteration_time(left, x, timed, edges, report)
    if len(happened.made) <= MOST_LINES:
        for iteration, _ in happened.made:
            left.axvline(iteration, color=DECISION, linewidth=0.6, alpha=0.5, linestyle=":")
    left.legend(frameon=False, fontsize=8.5, loc="lower right", ncols=3, columnspacing=1.2)
    left.set_xlim(limits)
    draw_strip(figure.add_subplot(grid[1, 0]), happened.made, happened.slowed, colours, limits)
    _learning(figure.add_subplot(grid[:2, 1]), history, report)
    if happened.shares:
        cuts = bins(len(history))
        middles = medians(np.asarray(history.iterations, dtype=float), cuts)
        share, slow = figure.add_subplot(grid[2, 0]), figure.add_subplot(grid[2, 1])
        shares = [medians(work_shares(history, rank), cuts) * 100 for rank in range(ranks)]
        draw_ranks(share, middles, shares, colours)
        _finish(share, "Share of the work that each rank computes", "%", limits)
        draw_ranks(slow, middles, [medians(values(history, rank, "chi"), cuts) for rank in range(ranks)], colours)
        _finish(slow, "Slowness of each rank (chi)", "times the reference rank", limits)
        rank_legend(figure, share, ranks)


def _finish(axes: Axes, name: str, unit: str, limits: Sequence[float]) -> None:
    axes.set_title(name, loc="left", fontsize=11, color=INK)
    axes.set_xlabel("iteration")
    axes.set_ylabel(unit)
    _tidy(axes)
    axes.set_xlim(*limits)
    axes.set_ylim(0, 1.1 * max(axes.get_ylim()[1], 1e-9))


def title(report: dict[str, Any]) -> str:
    """Return the headline of a picture."""
    emulated = ", emulated devices" if report["emulated"] else ""
    done = f"{report['state']} after {report['iterations']} iterations"
    return f"{report['job']}: {done} on {len(report['ranks'])} ranks{emulated}"


def bins(length: int, most: int = MOST_POINTS) -> list[slice]:
    """Cut a history into at most `most` slices of about equal length, of at least five iterations where possible."""
    # a median of five hides single iterations with an evaluation or a checkpoint, which do not describe ranks
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


def decisions(history: History) -> list[tuple[int, int]]:
    """Return first iteration and number of every decision; the decision of the first line is left out."""
    # "plan": the key in histories of earlier versions, to which a resumed run appends
    plans = [entry.get("decisionId", entry.get("plan")) for entry in history.entries]
    rising = zip(history.iterations[1:], pairwise(plans), strict=False)
    return [(iteration, now) for iteration, (before, now) in rising if now is not None and now != before]


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
    line = medians(times, edges)
    axes.plot(history.iterations, times, color=TIME, alpha=0.25, linewidth=0.8)
    axes.plot(x, line, color=TIME, linewidth=1.8, label="iteration")
    limit = report.get("limitIterationSeconds")
    if limit:
        axes.axhline(
            limit * 1e3,
            color=LIMIT,
            linestyle="--",
            linewidth=1.4,
            label=f"fluid limit (last window) {limit * 1e3:.0f} ms",
        )
    # single outliers must not flatten the rest; a straggler's iterations are no outliers
    axes.set_ylim(0, max(1.35 * float(np.nanpercentile(times, 90)), 1.35 * (limit or 0.0) * 1e3, 1.2 * _most(line)))
    axes.set_title("Iteration time", loc="left", fontsize=11, color=INK)
    axes.set_ylabel("milliseconds")
    _tidy(axes)


def _most(values: Array) -> float:
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else 0.0


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
    below = -16 if known[-1][1] > MOST_ABOVE else 6  # of a line that rises there is room above, but for the title
    last = f"{known[-1][1]:.1f} %"
    other.annotate(last, known[-1], xytext=(-4, below), textcoords="offset points", ha="right", color=ACCURACY)
    other.set_ylim(0, 102)
    other.margins(x=0)
    other.set_ylabel("test accuracy, %", color=ACCURACY)
    other.spines[["top", "left"]].set_visible(False)
    other.tick_params(colors=INK, labelsize=9)


def _all_ranks(figure: SubFigure, x: Array, stacks: Sequence[Sequence[Array]], ranks: Sequence[dict[str, Any]]) -> None:
    shape = max(1, -(-len(ranks) // COLUMNS)), min(COLUMNS, len(ranks))
    grid = figure.subplots(*shape, sharex=True, sharey=True, squeeze=False)
    highest = max(_most(np.sum(stack, axis=0)) for stack in stacks)
    for axes, rank, stack in zip(grid.flat, ranks, stacks, strict=False):
        axes.stackplot(x, *stack, colors=list(COLOURS.values()), labels=list(COLOURS), linewidth=0)
        axes.set_title(rank_title(rank).replace(", ", "\n", 1), loc="left", fontsize=9.5, color=INK)
        axes.set_ylim(0, 1.05 * highest)
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


# -- measured costs: JSON of heterotp_trainer.plans.work_plan.Costs --------------------------------------------


def full_seconds(calibration: dict[str, Any], rank: int, number: int) -> float:
    """Return the seconds of an iteration in all calls of class `number` on a rank from which no work is taken."""
    return float(calibration["classes"][number]["calls"] * calibration["curves"][rank][number]["seconds"][-1])


def measured_ranks(calibration: dict[str, Any]) -> list[int]:
    """Return the ranks that have any work, the fastest first; empty where the document holds no costs."""
    classes, curves = calibration.get("classes"), calibration.get("curves")
    if not classes or not curves or not calibration.get("link"):
        return []
    totals = {rank: sum(full_seconds(calibration, rank, k) for k in range(len(classes))) for rank in range(len(curves))}
    return sorted((rank for rank, total in totals.items() if total > 0), key=lambda rank: totals[rank])


def largest_classes(calibration: dict[str, Any], most: int) -> list[int]:
    """Return at most `most` numbers of classes: those that take longest on the slowest rank, in ascending order."""
    rank = measured_ranks(calibration)[-1]
    order = sorted(range(len(calibration["classes"])), key=lambda k: -full_seconds(calibration, rank, k))
    return sorted(order[:most])


def link_lines(calibration: dict[str, Any]) -> dict[str, tuple[list[float], list[float]]]:
    """Return per kind of transfer bytes and seconds at two points: zero, and the largest matrix of outputs."""
    largest = max(linears["rows"] * max(linears["outputs"]) for linears in calibration["classes"])
    sizes = [0.0, float(largest * calibration["item_bytes"])]
    lines = {how: calibration["link"][how] for how in LINKS}
    return {how: (sizes, [line["fixed"] + line["slope"] * size for size in sizes]) for how, line in lines.items()}


def class_title(linears: dict[str, Any]) -> str:
    """Return the title of a class's panel, e.g. `qkv, 4 calls`."""
    calls = linears["calls"]
    return f"{linears['name'].rpartition('.')[2]}, {calls} call{'' if calls == 1 else 's'} an iteration"


def _calibration(figure: SubFigure, calibration: dict[str, Any]) -> None:
    numbers, ranks = largest_classes(calibration, MOST_CLASSES), measured_ranks(calibration)
    *panels, last = figure.subplots(1, len(numbers) + 1, squeeze=False)[0]
    drawn = [("fastest", ranks[0], FASTEST, 3.5), ("slowest", ranks[-1], SLOWEST, 1.2)]
    for axes, k in zip(panels, numbers, strict=True):
        for name, rank, colour, width in drawn:
            curve = calibration["curves"][rank][k]
            seconds = np.asarray(curve["seconds"]) * 1e3
            label = f"{name}: rank {rank}"
            axes.plot(curve["columns"], seconds, color=colour, linewidth=width, marker="o", markersize=3, label=label)
        _small(axes, class_title(calibration["classes"][k]), "columns computed")
    panels[0].set_ylabel("milliseconds a call")
    panels[0].legend(frameon=False, fontsize=8, loc="upper left")
    for how, line in link_lines(calibration).items():
        sizes, millis = np.asarray(line[0]) * 1e-3, np.asarray(line[1]) * 1e3
        last.plot(sizes, millis, color=LINKS[how], linewidth=1.6, label=how)
    _small(last, "one transfer", "kilobytes", room=1.6)
    last.legend(frameon=False, fontsize=8, loc="upper left")
    figure.suptitle(
        "Cost calibration: the measured costs that decisions use", x=0.01, ha="left", fontsize=11, color=INK
    )


def _small(axes: Axes, title: str, unit: str, room: float = 1.3) -> None:
    """Finish a small panel, with room for a legend above its lines."""
    axes.set_title(title, loc="left", fontsize=9.5, color=INK)
    axes.set_xlabel(unit, fontsize=9)
    _tidy(axes)
    axes.set_ylim(0, room * max(axes.get_ylim()[1], 1e-9))
