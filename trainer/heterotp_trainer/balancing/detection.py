"""Who is a straggler: a rank whose products take longer than the reference's, seen in medians of a window.

The reference is the upper quartile of speed, not the fastest: with noise of 5 % the fastest of 8 would make
somebody a straggler every other iteration (algorithms, section 1).
"""

from collections.abc import Collection

import numpy as np
from heterotp_api.policy import BalancingSettings

from heterotp_trainer.balancing.history import Array, History

HARDLY_ANY = 0.01  # of the median rank's seconds
AT_ONCE = 0.30  # slower than this in one window is enough; above `enter` it takes two disjoint ones


def slowdowns(full: Array) -> Array:
    """Return each rank's matmul seconds over the reference's, than which a quarter of the ranks is faster.

    Ranks that have hardly any work (evicted, say) are no reference.
    """
    ordered = np.sort(full)
    working = ordered[ordered >= HARDLY_ANY * ordered[len(ordered) // 2]]
    reference = working[len(working) // 4]
    return full / reference if reference > 0 else np.ones_like(full)


def detect(history: History, policy: BalancingSettings, flagged: Collection[int]) -> tuple[int, ...]:
    """Return the stragglers, ascending: those flagged until they fall below `exit`, and those that came up."""
    newest, before = history.median(), history.median(1)
    if newest is None:
        return tuple(sorted(flagged))
    now = slowdowns(newest.full)
    twice = np.zeros(len(now), dtype=bool)
    if before is not None:
        twice = (now > 1 + policy.enter) & (slowdowns(before.full) > 1 + policy.enter)
    come = (now > 1 + max(AT_ONCE, policy.enter)) | twice
    staying = np.zeros(len(now), dtype=bool)
    staying[list(flagged)] = True
    stays = staying & (now >= 1 + policy.exit)
    return tuple(int(rank) for rank in np.flatnonzero(come | stays))


def drifted(now: Array, before: Array | None, policy: BalancingSettings, known: Collection[int]) -> tuple[int, ...]:
    """Return the ranks that are slower, or faster, than the shares were made for, ascending.

    now, before: how many times as slow as expected, 1 for the median rank, in the newest two windows. Two-sided: a
    recovery is seen as fast as a slow-down. Who is known stays until it is within `exit` again.
    """
    change = _either_way(now)
    twice = np.zeros(len(now), dtype=bool)
    if before is not None:
        twice = (change > 1 + policy.enter) & (_either_way(before) > 1 + policy.enter)
    come = (change > 1 + max(AT_ONCE, policy.enter)) | twice
    staying = np.zeros(len(now), dtype=bool)
    staying[list(known)] = True
    return tuple(int(rank) for rank in np.flatnonzero(come | (staying & (change >= 1 + policy.exit))))


def _either_way(ratio: Array) -> Array:
    """Return the change of each rank, slower or faster: [e], >= 1."""
    return np.maximum(ratio, np.divide(1.0, ratio, out=np.ones_like(ratio), where=ratio > 0))
