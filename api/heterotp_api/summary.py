"""Four figures that sum up a list of iteration times."""

import math
import statistics
from collections.abc import Sequence


def summary(seconds: Sequence[float]) -> dict[str, float | None]:
    """Return min, median, p95 (nearest rank: the smallest that 95 % do not exceed) and max; None without values."""
    if not seconds:
        return dict.fromkeys(("min", "median", "p95", "max"))
    ordered = sorted(seconds)
    p95 = ordered[math.ceil(0.95 * len(ordered)) - 1]
    return {"min": ordered[0], "median": statistics.median(ordered), "p95": p95, "max": ordered[-1]}
