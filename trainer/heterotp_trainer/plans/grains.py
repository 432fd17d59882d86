"""Whole blocks of columns: a count of columns is rounded down to blocks of `grain` columns."""

from collections.abc import Sequence

import numpy as np

from heterotp_trainer.plans.arrays import Array

ROUNDING = 1e-6  # of a block: 27.9999999 blocks count as 28
LARGEST_GRAIN = 4096


def blocks(columns: float, grain: int) -> int:
    """Return columns rounded down to whole blocks."""
    return int(columns / grain + ROUNDING) * grain


def grain_for(asked: int | None, auto: int, columns: int) -> int:
    """Return columns per block: `asked`, else `auto` but at most columns / 32, rounded down to a power of two."""
    if asked is not None:
        return max(1, min(asked, columns))
    grain = 1
    while grain * 2 <= min(auto, columns // 32):
        grain *= 2
    return grain


def grains_of(asked: int | None, auto: Sequence[int], columns: Array) -> Array:
    """Return columns per block by class and rank (see grain_for): [K, e]."""
    if asked is not None:
        return np.maximum(1.0, np.minimum(float(asked), columns))
    limit = np.minimum(np.asarray(auto, dtype=np.float64), np.floor(columns / 32))
    grains = np.ones_like(columns)
    size = 2
    while size <= LARGEST_GRAIN:
        grains = np.where(limit >= size, float(size), grains)
        size *= 2
    return grains


def in_blocks(columns: Array, grains: Array) -> Array:
    """Return columns rounded down to whole blocks (see blocks)."""
    return np.floor(columns / grains + ROUNDING) * grains
