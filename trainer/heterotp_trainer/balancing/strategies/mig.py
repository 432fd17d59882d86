"""MIG: how many columns a straggler gives away, lossless and every iteration anew (algorithms, section 3)."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from heterotp_api.policy import Mig

from heterotp_trainer.balancing.history import Observation
from heterotp_trainer.balancing.prediction import iteration_seconds
from heterotp_trainer.balancing.strategies.zero import columns_for, reduction_shares
from heterotp_trainer.plans.arrays import added
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.work_reduction import Reductions, WorkReductions

LEVELS, FEW_LEVELS = 16, 8  # how finely the common finishing time is searched, and for
MANY = 32  # stragglers and more, who are as many different ways to finish
MOST = 0.9  # of a rank's columns: some stay, or its speed could not be seen any more


@dataclass(frozen=True)
class Priced:
    """A candidate plan and the seconds that an iteration would take under it."""

    reductions: Reductions
    receivers: tuple[tuple[int, float], ...]
    seconds: float


def receivers_of(costs: Costs, seen: Observation, stragglers: Collection[int]) -> tuple[tuple[int, float], ...]:
    """Return the ranks that are no stragglers, ascending, each with its speed (1: the fastest of them).

    Speed is work by time: shards may be uneven. Of a rank without work nobody knows it; it counts as the fastest.
    """
    slow = set(stragglers)
    free = [rank for rank in range(len(seen.full)) if rank not in slow]
    work = added(costs.tables.operations * costs.tables.columns, costs.ranks).tolist()
    speeds = {rank: work[rank] / float(seen.full[rank]) for rank in free if work[rank] and seen.full[rank] > 0}
    fastest = max(speeds.values(), default=1.0)
    return tuple((rank, speeds.get(rank, fastest) / fastest) for rank in free)


def slowest_first(seen: Observation, ranks: Collection[int]) -> list[int]:
    """Return ranks by T, the slowest first (the paper's descendSort)."""
    totals = seen.total.tolist()
    return sorted(ranks, key=lambda rank: (-totals[rank], rank))


def migrate(
    costs: Costs, seen: Observation, stragglers: Collection[int], settings: Mig, base_wait: float
) -> Priced | None:
    """Return the cheapest plan that brings all stragglers down to one common time; None: none beats doing nothing."""
    receivers = receivers_of(costs, seen, stragglers)
    if not stragglers or not receivers:
        return None
    lowest, highest = float(seen.total.min()), float(seen.total.max())
    count = FEW_LEVELS if len(stragglers) > MANY else LEVELS
    levels = [lowest + (highest - lowest) * step / count for step in range(count)]
    priced = [_at_level(costs, seen, stragglers, receivers, settings, level, base_wait) for level in levels]
    best = min(priced, key=lambda plan: plan.seconds)
    nothing = iteration_seconds(costs, seen, {}, base_wait=base_wait)
    return best if best.seconds < nothing and best.reductions else None


def _at_level(
    costs: Costs,
    seen: Observation,
    stragglers: Collection[int],
    receivers: tuple[tuple[int, float], ...],
    settings: Mig,
    level: float,
    base_wait: float,
) -> Priced:
    """Return the plan in which all stragglers come down to a level of seconds, and its price."""
    counts = columns_for(costs, reduction_shares(seen, stragglers, level), MOST, settings.grain)
    reductions = WorkReductions(np.zeros_like(counts), counts)
    seconds = iteration_seconds(costs, seen, reductions, receivers, settings.primitive, base_wait)
    return Priced(reductions, receivers, seconds)
