"""Four figures that sum up a list of iteration times."""

import math
import statistics
from collections.abc import Sequence

from pydantic import Field

from heterotp_api.base import Model


class TimeSummary(Model):
    """Seconds of an iteration; None without values."""

    min: float | None = None
    median: float | None = None
    p95: float | None = Field(None, description="Nearest rank: the smallest time that 95 % do not exceed.")
    max: float | None = None


def summary(seconds: Sequence[float]) -> TimeSummary:
    """Return the figures of a list of seconds."""
    if not seconds:
        return TimeSummary()
    ordered = sorted(seconds)
    p95 = ordered[math.ceil(0.95 * len(ordered)) - 1]
    return TimeSummary(min=ordered[0], median=statistics.median(ordered), p95=p95, max=ordered[-1])
