"""How many columns each layer prunes of what a plan takes from one rank.

Importance differs from rank to rank, so that this part cannot be in the plan that all ranks agree on.
"""

import math
from collections.abc import Sequence

from heterotp_api.strategy_blocks import Zero

from heterotp_trainer.plans.grains import blocks


def columns_by_layer(
    pruned: int, unimportant: Sequence[float | None], settings: Zero, columns: int, room: int, grain: int
) -> list[int]:
    """Return how many of its columns each layer prunes, on average `pruned` (PriDiff in docs/algorithms.md).

    unimportant: by layer the share of columns whose importance is at most theta (gamma_k), 0..1; where one is None, all
    layers prune alike. The ratio is max(gamma_k, alpha gamma), as the paper has it (layerRatios: maximum), or scaled so
    that the sum stays what eq. 1 asks for. Counts are whole blocks of `grain`, the largest remainders rounded up first,
    and at most `room`: the columns that do not migrate.
    """
    known = [share for share in unimportant if share is not None]
    if len(known) < len(unimportant) or pruned in (0, room):
        return [pruned] * len(unimportant)
    gamma = pruned / columns if columns else 0.0
    ratios = [max(share, settings.alpha * gamma) for share in known]
    most = blocks(min(max(settings.gamma_max, gamma) * columns, room), grain)
    if settings.layer_ratios == "maximum":
        return [min(most, blocks(ratio * columns, grain)) for ratio in ratios]
    budget = pruned * len(known)
    ideals = _ideal(ratios, budget)
    counts = [min(most, blocks(ideal, grain)) for ideal in ideals]
    by_remainder = sorted(range(len(counts)), key=lambda k: (counts[k] - ideals[k], k))
    left = budget - sum(counts)
    while left >= grain and any(count + grain <= most for count in counts):
        for layer in by_remainder:
            if left >= grain and counts[layer] + grain <= most:
                counts[layer] += grain
                left -= grain
    return counts


def _ideal(ratios: Sequence[float], budget: int) -> list[float]:
    """Return the budget divided in proportion to the ratios."""
    whole = math.fsum(ratios)
    return [budget * ratio / whole if whole else 0.0 for ratio in ratios]
