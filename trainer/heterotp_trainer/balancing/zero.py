"""ZERO-resizing: how many columns a straggler leaves out (algorithms, section 2; the paper's eq. 1)."""

import math
from collections.abc import Collection, Sequence

from heterotp_api.policy import Zero

from heterotp_trainer.balancing.history import Observation
from heterotp_trainer.balancing.predict import pruned_share
from heterotp_trainer.balancing.work import Costs, Reliefs, Taken, blocks, grain_for

PRIDIFF_E = 0.5  # the paper's empirical ratio of PriDiffE
SHRINK_STEPS = 40  # halvings: below the resolution of a block


def relief(total: float, matmul: float, reference: float) -> float:
    """Return r = (T - T_ref) / M, at least 0: the share of matmul time to take away (eq. 1).

    With full-work times it does not depend on the last decision; with times as executed it oscillates.
    """
    return max(0.0, (total - reference) / matmul) if matmul > 0 else 0.0


def reference_seconds(seen: Observation, criterion: str) -> float:
    """Return T_ref: the minimum of T over the ranks, or the paper's average, which cannot go as far."""
    totals = seen.total.tolist()
    return min(totals) if criterion == "minimum" else math.fsum(totals) / len(totals)


def columns_for(costs: Costs, rank: int, share: float, most: float, grain: int | None) -> list[int]:
    """Return per class the columns whose absence takes `share` of the matmul time, at most `most` of them.

    Whole blocks, rounded down: rather a little slower than more deleted.
    """
    found = []
    for k, linears in enumerate(costs.classes):
        whole = linears.columns[rank]
        curve = costs.curves[rank][k]
        seconds = curve.at(whole)  # none where the rank has no such work
        wanted = whole - curve.columns_at(seconds * (1 - share)) if seconds else 0.0
        step = grain_for(grain, costs.grains[rank], whole)
        found.append(blocks(max(0.0, min(wanted, most * whole)), step))
    return found


def fixed(costs: Costs, ratio: float, ranks: Collection[int], grain: int | None, what: str) -> Reliefs:
    """Return the given ratio taken from the given ranks, whatever their speed; what: pruned or migrated."""
    reliefs = {}
    for rank in sorted(ranks):
        steps = [grain_for(grain, costs.grains[rank], c.columns[rank]) for c in costs.classes]
        whole = [c.columns[rank] for c in costs.classes]
        counts = [n if ratio >= 1 else blocks(ratio * n, step) for n, step in zip(whole, steps, strict=True)]
        reliefs[rank] = tuple(Taken(**{what: count}) for count in counts)
    return reliefs


def prune(
    costs: Costs, seen: Observation, stragglers: Collection[int], settings: Zero, reference: float, limit: float
) -> Reliefs:
    """Return what the stragglers prune to come down to the reference, within the deleted share allowed."""
    shares = {rank: _wanted(seen, rank, settings, reference) for rank in sorted(stragglers)}
    reliefs = _pruned(costs, shares, settings)
    if pruned_share(costs, reliefs) <= limit:
        return reliefs
    low, high = 0.0, 1.0
    for _ in range(SHRINK_STEPS):
        middle = (low + high) / 2
        smaller = _pruned(costs, {rank: share * middle for rank, share in shares.items()}, settings)
        low, high = (middle, high) if pruned_share(costs, smaller) <= limit else (low, middle)
    return _pruned(costs, {rank: share * low for rank, share in shares.items()}, settings)


def _wanted(seen: Observation, rank: int, settings: Zero, reference: float) -> float:
    if settings.selection == "PriDiffE":
        return min(PRIDIFF_E, settings.gamma_max)
    return relief(float(seen.total[rank]), float(seen.full[rank]), reference)


def _pruned(costs: Costs, shares: dict[int, float], settings: Zero) -> Reliefs:
    reliefs = {}
    for rank, share in shares.items():
        if settings.selection == "PriDiffE":  # a share of columns, not of time
            counts = [Taken(t.pruned) for t in fixed(costs, share, [rank], settings.grain, "pruned")[rank]]
        else:
            counts = [Taken(n) for n in columns_for(costs, rank, share, settings.gamma_max, settings.grain)]
        if any(taken.pruned for taken in counts):
            reliefs[rank] = tuple(counts)
    return reliefs


def by_layer(columns: int, candidates: Sequence[float], settings: Zero, layers_columns: int, grain: int) -> list[int]:
    """Return how many columns each layer prunes (PriDiff) so that together they prune `columns` per layer on average.

    candidates: per layer the share of columns whose importance lies below theta. The ratio is
    max(gamma_k, alpha gamma), scaled so that the sum stays what eq. 1 asked for; whole blocks, largest rests first.
    """
    gamma = columns / layers_columns if layers_columns else 0.0
    ratios = [max(share, settings.alpha * gamma) for share in candidates]
    most = blocks(max(settings.gamma_max, gamma) * layers_columns, grain)
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
