"""Embedding, logits and cross-entropy by vocabulary rows, with ranks that own none, against the whole ones."""

import pytest
from support.ranks.vocabulary_checks import LOSSES, PLANS, USES

CASES = [(ranks, plan) for ranks, plans in PLANS.items() for plan in plans]
QUANTITIES = (*LOSSES, "all ignored", *USES, "facts", "outside", "tied", "phase")


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize(("ranks", "plan"), CASES)
def test_equals_the_whole_vocabulary(gang, ranks, plan, quantity):
    found = [result[plan][quantity] for result in gang("vocabulary_checks.py", ranks)]
    assert len(found) == ranks and max(found) < (1e-6 if quantity == "capped" else 1e-12), found
