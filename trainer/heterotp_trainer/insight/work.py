"""How much of each stage's work a rank has under a plan, so that nobody is late who only has more to do."""

from collections.abc import Sequence

import numpy as np
from heterotp_api.stages import STAGES, Stage

from heterotp_trainer.balancing.effect import Effect
from heterotp_trainer.insight.blame import Array
from heterotp_trainer.plans.unit_plan import Family, UnitPlan

FAMILY_OF: dict[Stage, Family] = {
    "attentionForward": "heads",
    "attentionBackward": "heads",
    "ffnForward": "ffn",
    "ffnBackward": "ffn",
    "embedding": "vocab",
}


def work_of(plan: UnitPlan, effects: Sequence[Effect]) -> Array:
    """Return each rank's work in each stage, 1 for an even share: [e, S].

    effects: each rank's part of a plan that reduces work; empty: none does.
    """
    work = np.ones((plan.ranks, len(STAGES)))
    for column, stage in enumerate(STAGES):
        if stage == "optimizer":
            work[:, column] = [plan.share(rank) * plan.ranks for rank in range(plan.ranks)]
        elif stage in FAMILY_OF and (total := plan.total(FAMILY_OF[stage])):
            owned = np.array(plan.counts(FAMILY_OF[stage])) / total * plan.ranks
            work[:, column] = owned if stage == "embedding" else _executed(owned, effects)
    return work


def _executed(owned: Array, effects: Sequence[Effect]) -> Array:
    """Return the work that ranks execute: what is left of their own, and what they compute for others."""
    if not effects:
        return owned
    kept = np.array([1.0 - each.pruned - each.migrated for each in effects])
    received = np.array([each.received for each in effects])
    executed: Array = owned * kept + received
    return executed
