"""ZERO: stragglers prune columns (docs/algorithms.md, ZERO-resizing)."""

from heterotp_trainer.balancing.pruning import fixed, prune_stragglers
from heterotp_trainer.balancing.situation import Candidate, Reduced, Situation


def zero(situation: Situation) -> Candidate:
    """Return what stragglers prune, or what the policy's fixed ratio prunes of its ranks."""
    block = situation.policy.fixed
    if block is None:
        return Candidate(prune_stragglers(situation))
    reductions = fixed(situation.costs, block.fixed_ratio or 0.0, block.ranks or (), block.grain, "pruned")
    return Candidate(Reduced(reductions, mandated=True))
