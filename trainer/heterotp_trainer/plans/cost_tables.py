"""Linears and cost curves of all ranks as arrays, so that a decision on a thousand ranks takes milliseconds.

Shapes: K classes of linears, e ranks, P points of a curve. Sums are taken by `plans.arrays` (see there).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heterotp_trainer.plans.arrays import Array, added, at
from heterotp_trainer.plans.linears import Curve, LinearClass


@dataclass(frozen=True)
class CostTables:
    """Sizes and curves by class of linears and rank."""

    columns: Array  # [K, e] contraction columns
    outputs: Array  # [K, e]
    calls: Array  # [K, 1] calls per iteration
    operations: Array  # [K, e] operations of one column per iteration: forward, dX and dW
    rows: NDArray[np.bool_]  # [K, 1] whether the class is row-parallel
    xs: Array  # [K, e, P] columns at which curves were measured
    ys: Array  # [K, e, P] seconds of one call
    full: Array  # [e] seconds per iteration with no work taken
    taking: Array  # [K, e] outputs of a receiver's products; a rank without outputs counts with the largest shard

    @classmethod
    def of(cls, classes: Sequence[LinearClass], curves: Sequence[Sequence[Curve]]) -> "CostTables":
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


def _stretch(curves: Sequence[Sequence[Curve]], outputs: Array) -> Array:
    """Return measured outputs over the rank's outputs: the factor from measured columns to its own: [K, e]."""
    stretch = np.ones_like(outputs)
    for rank, each in enumerate(curves):
        for k, curve in enumerate(each):
            if curve.outputs and outputs[k, rank]:
                stretch[k, rank] = curve.outputs / outputs[k, rank]
    return stretch


def _points(curves: Sequence[Sequence[Curve]], classes: int, points: int, name: str) -> Array:
    """Return one coordinate of all curves, [K, e, P]; shorter curves repeat their last point."""
    padded = np.zeros((classes, len(curves), points))
    for rank, each in enumerate(curves):
        for k, curve in enumerate(each):
            values = getattr(curve, name)
            padded[k, rank, : len(values)] = values
            padded[k, rank, len(values) :] = values[-1]
    return padded
