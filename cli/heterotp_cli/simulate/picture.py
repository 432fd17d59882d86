"""Pictures of a simulation: seconds of an iteration by strategy, and iterations of a fleet."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from heterotp_cli.simulate.scenario import Prospect

INK, BAR, DELETED, LIMIT, NOTHING = "#30343b", "#2f6fb3", "#c8452f", "#3a8f5c", "#8a8f98"


def draw_prospect(prospect: Prospect, title: str, path: Path) -> None:
    """Draw every strategy's iteration time beside the limit, and the share of work that it deletes."""
    matplotlib.use("Agg")
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    names = [each.name for each in prospect.outcomes]
    colours = [NOTHING if name == "None" else BAR for name in names]
    bars = left.bar(names, [each.seconds for each in prospect.outcomes], color=colours)
    left.bar_label(bars, fmt="%.3g", fontsize=9)
    left.axhline(prospect.limit, color=LIMIT, linestyle="--", label=f"fluid limit {prospect.limit:.3g} s")
    left.axhline(prospect.homogeneous, color=INK, linestyle=":", label=f"no rank slow {prospect.homogeneous:.3g} s")
    _dress(left, "an iteration after the last change", "seconds")
    left.legend(frameon=False)
    deleted = right.bar(names, [100 * each.deleted for each in prospect.outcomes], color=DELETED)
    right.bar_label(deleted, fmt="%.3g", fontsize=9)
    _dress(right, "deleted work", "% of all work")
    figure.suptitle(f"{title} (simulated)", x=0.01, ha="left", fontweight="bold", color=INK)
    figure.savefig(path, dpi=110)


def draw_fleet(done: Mapping[str, Sequence[float]], title: str, path: Path) -> None:
    """Draw by strategy the iterations of a fleet's jobs, relative to those without slow-downs."""
    matplotlib.use("Agg")
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    axis = figure.subplots()
    axis.boxplot(list(done.values()), tick_labels=list(done), showmeans=True, whis=(5, 95))
    axis.axhline(1.0, color=LIMIT, linestyle="--", label="no rank slow")
    _dress(axis, "every job of the fleet: middle half, 5th to 95th percentile, mean", "iterations done, relative")
    axis.legend(frameon=False)
    figure.suptitle(f"{title} (simulated)", x=0.01, ha="left", fontweight="bold", color=INK)
    figure.savefig(path, dpi=110)


def _dress(axis: Axes, title: str, label: str) -> None:
    axis.set_title(title, fontsize=10, color=INK)
    axis.set_ylabel(label)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(axis="x", labelsize=9)
