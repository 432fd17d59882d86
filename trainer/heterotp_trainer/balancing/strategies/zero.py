"""ZERO-resizing: how many columns a straggler leaves out (algorithms, section 2; the paper's eq. 1)."""

import math
from collections.abc import Collection, Sequence

import numpy as np
from heterotp_api.policy import Zero

from heterotp_trainer.balancing.history import Observation
from heterotp_trainer.balancing.prediction import pruned_share
from heterotp_trainer.plans.arrays import Array, added, interpolated, total
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.grains import blocks, grains_of, in_blocks
from heterotp_trainer.plans.work_reduction import WorkReductions

PRIDIFF_E = 0.5  # the paper's empirical ratio of PriDiffE

SHRINK_STEPS = 20  # halvings: below the resolution of a block


def reference_seconds(costs: Costs, seen: Observation, criterion: str) -> float:
    """Return T_ref: the minimum of T over the ranks, or the paper's average, which cannot go as far.

    A rank with less than half of the mean work is no example: others cannot come down to it.
    """
    work = added(costs.tables.operations * costs.tables.columns, costs.ranks)
    holds = work >= total(work) / costs.ranks / 2
    totals = seen.total[holds]
    return float(totals.min()) if criterion == "minimum" else total(totals) / len(totals)


def columns_for(costs: Costs, share: Array, most: float, grain: int | None) -> Array:
    """Return the columns whose absence takes `share` [e] of each rank's matmul time, at most `most` of them: [K, e].

    Whole blocks, rounded down: rather a little slower than more deleted.
    """
    tables = costs.tables
    whole = tables.columns
    seconds = tables.seconds(whole)  # none where the rank has no such work
    kept = interpolated(tables.ys, tables.xs, seconds * (1 - share))
    wanted = np.where((seconds > 0) & (share > 0), np.minimum(whole - kept, most * whole), 0.0)
    return in_blocks(np.maximum(0.0, wanted), grains_of(grain, costs.grains, whole))


def fixed(costs: Costs, ratio: float, ranks: Collection[int], grain: int | None, what: str) -> WorkReductions:
    """Return the given ratio taken from the given ranks, whatever their speed; what: pruned or migrated."""
    whole = costs.tables.columns
    chosen = np.zeros(costs.ranks, dtype=bool)
    chosen[list(ranks)] = True
    counts = whole if ratio >= 1 else in_blocks(ratio * whole, grains_of(grain, costs.grains, whole))
    taken, nothing = np.where(chosen, counts, 0.0), np.zeros_like(whole)
    return WorkReductions(taken, nothing) if what == "pruned" else WorkReductions(nothing, taken)


def prune(
    costs: Costs, seen: Observation, stragglers: Collection[int], settings: Zero, reference: float, limit: float
) -> WorkReductions:
    """Return what the stragglers prune to come down to the reference, within the deleted share allowed."""
    wanted = reduction_shares(seen, stragglers, reference)
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
    """Return r = (T - T_ref) / M of each straggler, 0 of the others: the share of matmul time to take away (eq. 1). [e]

    With full-work times it does not depend on the last decision; with times as executed it oscillates.
    """
    chosen = np.zeros(len(seen.full), dtype=bool)
    chosen[list(stragglers)] = True
    share = np.divide(seen.total - level, seen.full, out=np.zeros_like(seen.full), where=seen.full > 0)
    return np.where(chosen, np.maximum(0.0, share), 0.0)


def _pruned(costs: Costs, wanted: Array, part: float, settings: Zero) -> WorkReductions:
    """Return what is pruned for a part, 0..1, of the relief wanted [e]."""
    if settings.selection == "PriDiffE":  # a share of columns, not of time, whatever is wanted
        ratio = part * min(PRIDIFF_E, settings.gamma_max)
        return fixed(costs, ratio, np.flatnonzero(wanted > 0).tolist(), settings.grain, "pruned")
    counts = columns_for(costs, part * wanted, settings.gamma_max, settings.grain)
    return WorkReductions(counts, np.zeros_like(counts))


def by_layer(
    columns: int, candidates: Sequence[float], settings: Zero, layers_columns: int, room: int, grain: int
) -> list[int]:
    """Return how many columns each layer prunes (PriDiff) so that together they prune `columns` per layer on average.

    candidates: per layer the share of columns whose importance lies below theta. The ratio is
    max(gamma_k, alpha gamma), scaled so that the sum stays what eq. 1 asked for; whole blocks, largest rests first.
    None prunes more than `room` of its layers_columns: the others migrate.
    """
    gamma = columns / layers_columns if layers_columns else 0.0
    ratios = [max(share, settings.alpha * gamma) for share in candidates]
    most = blocks(min(max(settings.gamma_max, gamma) * layers_columns, room), grain)
    budget = columns * len(candidates)
    counts = _scaled(ratios, budget, most, layers_columns, grain)
    rests = sorted(range(len(counts)), key=lambda k: (counts[k] - _ideal(ratios, budget)[k], k))
    left = budget - sum(counts)
    while left >= grain and any(count + grain <= most for count in counts):
        for layer in rests:
            if left >= grain and counts[layer] + grain <= most:
                counts[layer] += grain
                left -= grain
    return counts


def _ideal(ratios: Sequence[float], budget: int) -> list[float]:
    whole = math.fsum(ratios)
    return [budget * ratio / whole if whole else 0.0 for ratio in ratios]


def _scaled(ratios: Sequence[float], budget: int, most: int, columns: int, grain: int) -> list[int]:
    return [min(most, blocks(ideal, grain)) for ideal in _ideal(ratios, budget)]
