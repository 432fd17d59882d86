"""RESHARD: units of stragglers move to other ranks, once (algorithms, section 5)."""

from heterotp_trainer.balancing.move_decision import next_move
from heterotp_trainer.balancing.pruning import prune_meanwhile
from heterotp_trainer.balancing.situation import Candidate, Situation


def reshard(situation: Situation) -> Candidate:
    """Return the next step of a move; meanwhile stragglers prune where maxPrunedShare allows it."""
    return Candidate(prune_meanwhile(situation), next_move(situation))
