"""MIG: other ranks compute a part of the stragglers' columns (docs/algorithms.md, MIG)."""

from heterotp_api.strategy_blocks import Mig

from heterotp_trainer.balancing.history import Observation
from heterotp_trainer.balancing.migration import migrate, receivers_of
from heterotp_trainer.balancing.pruning import fixed
from heterotp_trainer.balancing.situation import Candidate, Reduced, Situation


def mig(situation: Situation) -> Candidate:
    """Return what stragglers migrate, or what the policy's fixed ratio migrates from its ranks."""
    settings = situation.policy.mig or Mig()
    if settings.fixed_ratio is not None:
        return Candidate(_fixed(situation, settings))
    if situation.reducible is None:
        return Candidate()
    found = migrate(situation.costs, situation.reducible, situation.stragglers, settings, situation.base_wait)
    if found is None:
        return Candidate(Reduced({}))
    return Candidate(Reduced(found.reductions, found.receivers, settings.primitive))


def _fixed(situation: Situation, settings: Mig) -> Reduced:
    """Return the fixed ratio, migrated to the other ranks; without measured speeds they count as equally fast."""
    costs, ranks = situation.costs, settings.ranks or []
    ones = [1.0] * situation.costs.ranks
    receivers = receivers_of(costs, situation.seen or Observation.of(ones, ones, ones, ones), ranks, settings)
    reductions = fixed(costs, settings.fixed_ratio or 0.0, ranks, settings.grain, "migrated")
    return Reduced(reductions, receivers, settings.primitive, mandated=True)
