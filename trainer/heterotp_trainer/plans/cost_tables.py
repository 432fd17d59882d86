"""Curves and reliefs of all ranks as arrays, so that a thousand ranks are decided on in milliseconds.

Shapes: K classes of linears, e ranks, P points of a curve. Element by element only, and sums by `total`: those of
numpy round differently from host to host.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from heterotp_trainer.plans.work_plan import Curve, LinearClass, Taken

Array = NDArray[np.float64]
LARGEST_GRAIN = 4096


@dataclass(frozen=True)
class Tables:
    """Costs by class and rank: [K, e], curves [K, e, P], seconds an iteration with nothing taken [e]."""

    columns: Array
    outputs: Array
    calls: Array  # [K, 1]
    operations: Array  # of one column, all three products, an iteration
    rows: NDArray[np.bool_]  # [K, 1], whether a class is row-parallel
    xs: Array
    ys: Array
    full: Array
    taking: Array  # outputs of those who take work over; who has none computes with as many as the rank that has most

    @classmethod
    def of(cls, classes: Sequence["LinearClass"], curves: Sequence[Sequence["Curve"]]) -> "Tables":
        """Return the tables of classes and curves[rank][class]."""
        ranks = len(curves)
        columns, outputs = (_table([getattr(c, name) for c in classes], ranks) for name in ("columns", "outputs"))
        calls = np.array([[float(c.calls)] for c in classes]).reshape(-1, 1)
        height = np.array([[2.0 * c.rows * 3 * c.calls] for c in classes]).reshape(-1, 1)
        points = max((len(curve.columns) for each in curves for curve in each), default=1)
        xs, ys = (_points(curves, len(classes), points, name) for name in ("columns", "seconds"))
        xs = xs * _stretch(curves, outputs)[..., None]
        rows = np.array([[c.parallel == "row"] for c in classes], dtype=bool).reshape(-1, 1)
        full = added(calls * at(xs, ys, np.where(outputs > 0, columns, 0.0)), ranks)
        taking = np.where(outputs > 0, outputs, outputs.max(axis=1, keepdims=True, initial=0.0))
        return cls(columns, outputs, calls, height * outputs, rows, xs, ys, full, taking)

    def seconds(self, columns: Array) -> Array:
        """Return the seconds of one call on so many columns: [K, e] -> [K, e]."""
        return at(self.xs, self.ys, np.where(self.outputs > 0, columns, 0.0))


def _table(values: Sequence[Sequence[int]], ranks: int) -> Array:
    return np.array(values, dtype=np.float64).reshape(len(values), ranks)


def _stretch(curves: Sequence[Sequence["Curve"]], outputs: Array) -> Array:
    """Return how many columns with a rank's outputs take as long as one with those that were measured: [K, e]."""
    stretch = np.ones_like(outputs)
    for rank, each in enumerate(curves):
        for k, curve in enumerate(each):
            if curve.outputs and outputs[k, rank]:
                stretch[k, rank] = curve.outputs / outputs[k, rank]
    return stretch


def _points(curves: Sequence[Sequence["Curve"]], classes: int, points: int, name: str) -> Array:
    """Return one coordinate of all curves, [K, e, P]; shorter curves repeat their last point."""
    padded = np.zeros((classes, len(curves), points))
    for rank, each in enumerate(curves):
        for k, curve in enumerate(each):
            values = getattr(curve, name)
            padded[k, rank, : len(values)] = values
            padded[k, rank, len(values) :] = values[-1]
    return padded


def added(terms: Array, ranks: int) -> Array:
    """Return the sums over classes, in their order: [K, e] -> [e]."""
    total = np.zeros(ranks)
    for row in terms:
        total = total + row
    return total


def total(values: Array) -> float:
    """Return the sum, added one after the other: np.sum goes by the width of the host's vectors."""
    return float(np.add.accumulate(values.ravel())[-1]) if values.size else 0.0


def at(xs: Array, ys: Array, x: Array) -> Array:
    """Return y on the curves at x, nothing at 0: [K, e, P], [K, e] -> [K, e]."""
    return np.where(x > 0, interpolated(xs, ys, x), 0.0)


def interpolated(xs: Array, ys: Array, x: Array) -> Array:
    """Return y on the lines through the points; of points at one x the last, below the first, above the last slope."""
    y = ys[..., 0].copy()
    for p in range(1, xs.shape[-1]):
        x0, x1, y0, y1 = xs[..., p - 1], xs[..., p], ys[..., p - 1], ys[..., p]
        rising = x1 > x0
        slope = np.divide(y1 - y0, x1 - x0, out=np.zeros_like(y0), where=rising)
        flat = ~rising & (y1 != y0)  # a point that repeats the last one only fills up the table
        y = np.where((x >= x0) & rising, y0 + (x - x0) * slope, np.where((x >= x1) & flat, y1, y))
    return y


def grains_of(asked: int | None, auto: Sequence[int], columns: Array) -> Array:
    """Return columns per block by class and rank (see work.grain_for): [K, e]."""
    if asked is not None:
        return np.maximum(1.0, np.minimum(float(asked), columns))
    limit = np.minimum(np.asarray(auto, dtype=np.float64), np.floor(columns / 32))
    grains = np.ones_like(columns)
    size = 2
    while size <= LARGEST_GRAIN:
        grains = np.where(limit >= size, float(size), grains)
        size *= 2
    return grains


class Relieved(Mapping[int, "tuple[Taken, ...]"]):
    """What is taken, by rank: a map to one `Taken` per class, held as columns [K, e]. Ranks of whom nothing is
    taken are not in it."""

    def __init__(self, pruned: Array, migrated: Array) -> None:
        self.pruned, self.migrated = pruned, migrated
        self.ranks = np.flatnonzero(((pruned > 0) | (migrated > 0)).any(axis=0)).tolist()

    @classmethod
    def of(cls, reliefs: Mapping[int, "tuple[Taken, ...]"], classes: int, ranks: int) -> "Relieved":
        """Return a map as arrays."""
        if isinstance(reliefs, Relieved):
            return reliefs
        pruned, migrated = np.zeros((classes, ranks)), np.zeros((classes, ranks))
        for rank, taken in reliefs.items():
            pruned[:, rank] = [each.pruned for each in taken]
            migrated[:, rank] = [each.migrated for each in taken]
        return cls(pruned, migrated)

    @property
    def migrates(self) -> bool:
        """Whether any column migrates."""
        return bool((self.migrated > 0).any())

    @cached_property
    def _by_rank(self) -> "dict[int, tuple[Taken, ...]]":
        from heterotp_trainer.plans.work_plan import Taken

        pairs = np.stack([self.pruned, self.migrated], axis=-1)[:, self.ranks].swapaxes(0, 1).astype(int).tolist()
        return {r: tuple(Taken(*each) for each in taken) for r, taken in zip(self.ranks, pairs, strict=True)}

    def __getitem__(self, rank: int) -> "tuple[Taken, ...]":
        return self._by_rank[rank]

    def __iter__(self) -> Iterator[int]:
        return iter(self.ranks)

    def __len__(self) -> int:
        return len(self.ranks)
