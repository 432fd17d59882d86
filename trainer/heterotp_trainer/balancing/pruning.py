"""How many columns stragglers prune (ZERO-resizing: docs/algorithms.md, ZERO-resizing; the paper's eq. 1).

Shapes: K classes of linears, e ranks.
"""

from collections.abc import Collection

import numpy as np
from heterotp_api.strategy_blocks import Zero

from heterotp_trainer.balancing.history import Observation
from heterotp_trainer.balancing.prediction import pruned_share
from heterotp_trainer.balancing.situation import Reduced, Situation
from heterotp_trainer.plans.arrays import Array, added, interpolated, total
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.grains import grains_of, in_blocks
from heterotp_trainer.plans.work_reduction import WorkReductions

SHRINK_STEPS = 20  # halvings: below the resolution of a block


def reference_seconds(costs: Costs, seen: Observation, criterion: str) -> float:
    """Return T_ref in seconds: the minimum of T over the ranks, or the paper's average.

    Ranks with less than half of the mean work do not count: the others cannot become as fast.
    """
    work = added(costs.tables.operations * costs.tables.columns, costs.ranks)
    holds = work >= total(work) / costs.ranks / 2
    totals = seen.total[holds]
    return float(totals.min()) if criterion == "minimum" else total(totals) / len(totals)


def columns_for(costs: Costs, share: Array, most: float, grain: int | None) -> Array:
    """Return the columns whose absence saves `share` [e] of each rank's matmul seconds: [K, e].

    At most the share `most` of all columns, rounded down to whole blocks so that no more is deleted than needed.
    """
    tables = costs.tables
    whole = tables.columns
    seconds = tables.seconds(whole)  # 0 where the rank has no columns of the class
    kept = interpolated(tables.ys, tables.xs, seconds * (1 - share))
    wanted = np.where((seconds > 0) & (share > 0), np.minimum(whole - kept, most * whole), 0.0)
    return in_blocks(np.maximum(0.0, wanted), grains_of(grain, costs.grains, whole))


def columns_in_proportion(costs: Costs, share: Array, most: float, grain: int | None) -> Array:
    """Return `share` [e] of each rank's columns, as eq. 1 is printed: [K, e], rounded down to whole blocks.

    Products take less time in proportion only where small ones are as efficient as large ones.
    """
    whole = costs.tables.columns
    return in_blocks(np.minimum(share, most) * whole, grains_of(grain, costs.grains, whole))


def fixed(costs: Costs, ratio: float, ranks: Collection[int], grain: int | None, what: str) -> WorkReductions:
    """Return the given ratio of the given ranks' columns, whatever their speed; what: `pruned` or `migrated`."""
    whole = costs.tables.columns
    chosen = np.zeros(costs.ranks, dtype=bool)
    chosen[list(ranks)] = True
    counts = whole if ratio >= 1 else in_blocks(ratio * whole, grains_of(grain, costs.grains, whole))
    taken, nothing = np.where(chosen, counts, 0.0), np.zeros_like(whole)
    return WorkReductions(taken, nothing) if what == "pruned" else WorkReductions(nothing, taken)


def prune_stragglers(situation: Situation) -> Reduced | None:
    """Return what stragglers prune to come down to the reference, within maxPrunedShare; None: none is due."""
    if situation.reducible is None:
        return None
    costs, seen, policy = situation.costs, situation.reducible, situation.policy
    settings = policy.zero or Zero()
    reference = reference_seconds(costs, timed(seen, settings), settings.criterion)
    return Reduced(prune(costs, seen, situation.stragglers, settings, reference, policy.pruned_share_limit))


def timed(seen: Observation, settings: Zero) -> Observation:
    """Return the times that eq. 1 takes by the policy: full-work times, or the paper's, as executed."""
    return seen.as_executed if settings.times == "measured" else seen


def prune_meanwhile(situation: Situation) -> Reduced | None:
    """Return what stragglers prune until units move; None where the policy allows no loss, or none is due."""
    return prune_stragglers(situation) if situation.policy.pruned_share_limit > 0 else None


def prune(
    costs: Costs, seen: Observation, stragglers: Collection[int], settings: Zero, reference: float, limit: float
) -> WorkReductions:
    """Return what the stragglers prune to come down to the reference seconds, at most `limit` of all work.

    reference: of the same times as the policy takes for eq. 1, see `timed`.
    """
    wanted = reduction_shares(timed(seen, settings), stragglers, reference)
    reductions = _pruned(costs, wanted, 1.0, settings)
    if pruned_share(costs, reductions) <= limit:
        return reductions
    low, high = 0.0, 1.0
    for _ in range(SHRINK_STEPS):
        middle = (low + high) / 2
        within = pruned_share(costs, _pruned(costs, wanted, middle, settings)) <= limit
        low, high = (middle, high) if within else (low, middle)
    return _pruned(costs, wanted, low, settings)


def reduction_shares(seen: Observation, stragglers: Collection[int], level: float) -> Array:
    """Return the share of work to reduce r = (T - T_ref) / M of each straggler, 0 for the others (eq. 1): [e].

    level: T_ref in seconds. Full-work times make r independent of the last decision; times as executed oscillate.
    """
    chosen = np.zeros(len(seen.full), dtype=bool)
    chosen[list(stragglers)] = True
    share = np.divide(seen.total - level, seen.full, out=np.zeros_like(seen.full), where=seen.full > 0)
    return np.where(chosen, np.maximum(0.0, share), 0.0)


def _pruned(costs: Costs, wanted: Array, part: float, settings: Zero) -> WorkReductions:
    """Return what is pruned for a part, 0..1, of the wanted shares of work [e]."""
    fixed_ratio = settings.selection_traits.fixed_ratio
    if fixed_ratio is not None:  # a share of columns, not of time
        ratio = part * min(fixed_ratio, settings.gamma_max)
        return fixed(costs, ratio, np.flatnonzero(wanted > 0).tolist(), settings.grain, "pruned")
    columns = columns_in_proportion if settings.gamma_by == "time" else columns_for
    counts = columns(costs, part * wanted, settings.gamma_max, settings.grain)
    return WorkReductions(counts, np.zeros_like(counts))
