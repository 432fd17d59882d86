"""None: every rank keeps its work and its units."""

from heterotp_trainer.balancing.situation import Candidate, Situation


def none(situation: Situation) -> Candidate:
    """Return no change."""
    del situation
    return Candidate()
