"""The fluid limit: the least seconds of an iteration without loss (docs/algorithms.md, RESHARD)."""

from collections.abc import Sequence
from dataclasses import dataclass

from heterotp_trainer.plans.unit_plan import balanced_counts


@dataclass(frozen=True)
class RankCost:
    """One rank's median seconds of an iteration, and its share of all units, 0..1."""

    share: float
    matmul: float
    unit: float
    fixed: float
    wait: float


def speeds(costs: Sequence[RankCost]) -> list[float | None]:
    """Return the share of all matmul work per second of matmul, by rank; None for a rank without work."""
    return [cost.share / cost.matmul if cost.share > 0 and cost.matmul > 0 else None for cost in costs]


def fluid_limit(costs: Sequence[RankCost], wait: float | None = None) -> float | None:
    """Return seconds of an iteration with the fractional optimum of shares: 1 / sum_i v_i + F + min W.

    v_i = share_i / (M_i + U_i). wait: least seconds of waiting, where the costs contain transfers of a migration.
    A rank without work does not count; None while nothing is measured.
    """
    rates = [c.share / (c.matmul + c.unit) for c in costs if c.share > 0 and c.matmul + c.unit > 0]
    if not rates:
        return None
    return 1 / sum(rates) + max(c.fixed for c in costs) + (min(c.wait for c in costs) if wait is None else wait)


def whole_heads_penalty(relative_speeds: Sequence[float], heads: int) -> float:
    """Return attention's seconds with whole heads over those with fractional shares, >= 1."""
    counts = balanced_counts(heads, relative_speeds)
    longest = max(count / speed for count, speed in zip(counts, relative_speeds, strict=True))
    return longest / (heads / sum(relative_speeds))
