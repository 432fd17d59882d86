"""AUTO: as RESHARD; block `zero` of the policy may set how stragglers prune (docs/algorithms.md, AUTO)."""

from heterotp_trainer.balancing.move_decision import move_and_prune_meanwhile
from heterotp_trainer.balancing.situation import Candidate, Situation


def auto(situation: Situation) -> Candidate:
    """Return the next step of a move; meanwhile stragglers prune as the policy's block `zero` sets it."""
    return move_and_prune_meanwhile(situation)
