"""Sums and interpolation over arrays that round alike on every host.

Shapes: K classes of linears, e ranks, P points of a curve. Element by element only; sums are taken in order by `total`,
since the sums of numpy depend on the width of the host's vector registers.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    pass


Array = NDArray[np.float64]


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
