"""How far the clocks of machines differ, by the collectives in which their ranks meet."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def offsets(arrived: Array, completed: Array, boots: Sequence[str]) -> Array:
    """Return what each rank's clock shows more than rank 0's, seconds: [e].

    arrived, completed: of each iteration and rank, means over the same collectives, [n, e], by the ranks' own clocks.
    boots: of each rank what identifies the boot of its machine: ranks of one boot share a clock. No collective is
    complete before all have arrived: with o the offset of a machine, completed_j - o >= arrived_0 and completed_0 >=
    arrived_j - o. The middle between both bounds is returned; its error is at most half of what a transfer takes.
    """
    found = np.zeros(len(boots))
    if not len(arrived):
        return found
    home = [rank for rank, boot in enumerate(boots) if boot == boots[0]]
    last, first = arrived[:, home].max(axis=1), completed[:, home].min(axis=1)
    for boot in set(boots) - {boots[0]}:
        ranks = [rank for rank, other in enumerate(boots) if other == boot]
        most = (completed[:, ranks].min(axis=1) - last).min()
        least = (arrived[:, ranks].max(axis=1) - first).max()
        found[ranks] = (most + least) / 2
    return found
