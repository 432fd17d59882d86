"""AUTO: the remedies in the order of their costs (algorithms, section 6)."""

from heterotp_trainer.balancing.move_decision import next_move
from heterotp_trainer.balancing.pruning import prune_meanwhile
from heterotp_trainer.balancing.situation import Candidate, Situation


def auto(situation: Situation) -> Candidate:
    """Return what is pruned at once, within maxPrunedShare (0 by default), and the move of units once it pays."""
    return Candidate(prune_meanwhile(situation), next_move(situation))
