"""Curves and reliefs of all ranks as arrays, so that a thousand ranks are decided on in milliseconds.

Shapes: K classes of linears, e ranks, P points of a curve. Element by element only, and sums by `total`: those of
numpy round differently from host to host.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from heterotp_trainer.plans.arrays import Array, added, at

if TYPE_CHECKING:
    from heterotp_trainer.plans.linears import Curve, LinearClass


@dataclass(frozen=True)
class CostTables:
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
    def of(cls, classes: Sequence["LinearClass"], curves: Sequence[Sequence["Curve"]]) -> "CostTables":
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
