"""How many columns of stragglers other ranks compute, every iteration, without loss (MIG: docs/algorithms.md, MIG)."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from heterotp_api.policy import Mig

from heterotp_trainer.balancing.history import Observation
from heterotp_trainer.balancing.prediction import iteration_seconds
from heterotp_trainer.balancing.pruning import columns_for, reduction_shares
from heterotp_trainer.plans.arrays import added
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.work_reduction import Reductions, WorkReductions

LEVELS, FEW_LEVELS = 16, 8  # candidates of the common finishing time, up to MANY stragglers and above
MANY = 32
MOST = 0.9  # of a rank's columns migrate: the rest keeps its speed measurable


@dataclass(frozen=True)
class Priced:
    """Candidate reductions, and the predicted seconds of an iteration."""

    reductions: Reductions
    receivers: tuple[tuple[int, float], ...]
    seconds: float


def receivers_of(costs: Costs, seen: Observation, stragglers: Collection[int]) -> tuple[tuple[int, float], ...]:
    """Return the ranks that are not stragglers, ascending, each with its speed relative to the fastest of them.

    Speed is work per second, because shards may be uneven. A rank without measured work counts as the fastest.
    """
    slow = set(stragglers)
    free = [rank for rank in range(len(seen.full)) if rank not in slow]
    work = added(costs.tables.operations * costs.tables.columns, costs.ranks).tolist()
    speeds = {rank: work[rank] / float(seen.full[rank]) for rank in free if work[rank] and seen.full[rank] > 0}
    fastest = max(speeds.values(), default=1.0)
    return tuple((rank, speeds.get(rank, fastest) / fastest) for rank in free)


def slowest_first(seen: Observation, ranks: Collection[int]) -> list[int]:
    """Return ranks in descending order of T (the paper's descendSort)."""
    totals = seen.total.tolist()
    return sorted(ranks, key=lambda rank: (-totals[rank], rank))


def migrate(
    costs: Costs, seen: Observation, stragglers: Collection[int], settings: Mig, base_wait: float
) -> Priced | None:
    """Return the fastest reductions that bring all stragglers down to one common time; None: none is faster."""
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
    """Return the reductions that bring all stragglers down to `level` seconds."""
    counts = columns_for(costs, reduction_shares(seen, stragglers, level), MOST, settings.grain)
    reductions = WorkReductions(np.zeros_like(counts), counts)
    seconds = iteration_seconds(costs, seen, reductions, receivers, settings.primitive, base_wait)
    return Priced(reductions, receivers, seconds)
