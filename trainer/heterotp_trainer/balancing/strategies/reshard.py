"""RESHARD: units of stragglers move to other ranks, once (docs/algorithms.md, RESHARD)."""

from heterotp_trainer.balancing.move_decision import move_and_prune_meanwhile
from heterotp_trainer.balancing.situation import Candidate, Situation


def reshard(situation: Situation) -> Candidate:
    """Return the next step of a move; meanwhile stragglers prune where maxPrunedShare allows it."""
    return move_and_prune_meanwhile(situation)
