"""How many columns of stragglers other ranks compute, every iteration, without loss (MIG: docs/algorithms.md, MIG)."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from heterotp_api.strategy_blocks import Mig

from heterotp_trainer.balancing.history import Observation
from heterotp_trainer.balancing.prediction import iteration_seconds
from heterotp_trainer.balancing.pruning import columns_for, columns_in_proportion, reduction_shares, reference_seconds
from heterotp_trainer.plans.arrays import Array, added
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


def receivers_of(
    costs: Costs, seen: Observation, senders: Collection[int], settings: Mig
) -> tuple[tuple[int, float], ...]:
    """Return the ranks that are no senders, ascending, each with its speed relative to the fastest of them.

    Speed is work per second, because shards may be uneven. A rank without measured work counts as the fastest. Where
    the policy asks for equal parts, all are as fast.
    """
    slow = set(senders)
    free = [rank for rank in range(len(seen.full)) if rank not in slow]
    if settings.parts == "equal":
        return tuple((rank, 1.0) for rank in free)
    work = added(costs.tables.operations * costs.tables.columns, costs.ranks).tolist()
    speeds = {rank: work[rank] / float(seen.full[rank]) for rank in free if work[rank] and seen.full[rank] > 0}
    fastest = max(speeds.values(), default=1.0)
    return tuple((rank, speeds.get(rank, fastest) / fastest) for rank in free)


def slowest_first(seen: Observation, ranks: Collection[int]) -> list[int]:
    """Return ranks in descending order of T (the paper's descendSort)."""
    totals = seen.total.tolist()
    return sorted(ranks, key=lambda rank: (-totals[rank], rank))


@dataclass(frozen=True)
class _Migration:
    """What all candidates of MIG share."""

    costs: Costs
    seen: Observation
    stragglers: Collection[int]
    receivers: tuple[tuple[int, float], ...]
    settings: Mig
    base_wait: float

    def to_the_minimum(self) -> Priced:
        """Return the candidate with the columns L gamma of eq. 1 as printed, with T_min (the paper's section 4.1)."""
        wanted = reduction_shares(self.seen, self.stragglers, reference_seconds(self.costs, self.seen, "minimum"))
        return self._priced(columns_in_proportion(self.costs, wanted, MOST, self.settings.grain))

    def at_level(self, level: float) -> Priced:
        """Return the candidate that brings all stragglers down to `level` seconds."""
        wanted = reduction_shares(self.seen, self.stragglers, level)
        return self._priced(columns_for(self.costs, wanted, MOST, self.settings.grain))

    def _priced(self, migrated: Array) -> Priced:
        reductions, primitive = WorkReductions(np.zeros_like(migrated), migrated), self.settings.primitive
        seconds = iteration_seconds(self.costs, self.seen, reductions, self.receivers, primitive, self.base_wait)
        return Priced(reductions, self.receivers, seconds)


def migrate(
    costs: Costs, seen: Observation, stragglers: Collection[int], settings: Mig, base_wait: float
) -> Priced | None:
    """Return the fastest reductions that bring all stragglers down to one common time; None: none is faster.

    With target minimum: those that eq. 1 asks for, however long the receivers take.
    """
    receivers = receivers_of(costs, seen, stragglers, settings)
    if not stragglers or not receivers:
        return None
    problem = _Migration(costs, seen, stragglers, receivers, settings, base_wait)
    if settings.target == "minimum":
        best = problem.to_the_minimum()
    else:
        lowest, highest = float(seen.total.min()), float(seen.total.max())
        count = FEW_LEVELS if len(stragglers) > MANY else LEVELS
        levels = [lowest + (highest - lowest) * step / count for step in range(count)]
        best = min(map(problem.at_level, levels), key=lambda plan: plan.seconds)
    nothing = iteration_seconds(costs, seen, {}, base_wait=base_wait)
    return best if best.seconds < nothing and best.reductions else None
