"""Sums and interpolation over arrays that round alike on every host.

Shapes: K classes of linears, e ranks, P points of a curve. All operations are element by element; sums are taken in
order by `total`, because the order of additions in numpy.sum depends on the host's vector width.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def added(terms: Array, ranks: int) -> Array:
    """Return the sums over classes, in their order: [K, e] -> [e]."""
    total = np.zeros(ranks)
    for row in terms:
        total = total + row
    return total


def total(values: Array) -> float:
    """Return the sum, added one value after the other."""
    return float(np.add.accumulate(values.ravel())[-1]) if values.size else 0.0


def at(xs: Array, ys: Array, x: Array) -> Array:
    """Return y on the curves at x, nothing at 0: [K, e, P], [K, e] -> [K, e]."""
    return np.where(x > 0, interpolated(xs, ys, x), 0.0)


def interpolated(xs: Array, ys: Array, x: Array) -> Array:
    """Return y by linear interpolation: [e, P], [e, P], [e] -> [e], or with K in front.

    Below the first point: its y; above the last point: along the last slope; where several points have one x: the last.
    """
    y = ys[..., 0].copy()
    for p in range(1, xs.shape[-1]):
        x0, x1, y0, y1 = xs[..., p - 1], xs[..., p], ys[..., p - 1], ys[..., p]
        rising = x1 > x0
        slope = np.divide(y1 - y0, x1 - x0, out=np.zeros_like(y0), where=rising)
        flat = ~rising & (y1 != y0)  # a point that repeats the one before is padding
        y = np.where((x >= x0) & rising, y0 + (x - x0) * slope, np.where((x >= x1) & flat, y1, y))
    return y
