"""Norms of each head, whose gradients every rank has a part of, in sessions with clipping: as in the plain model."""

import pytest
from support.ranks.architectures import BOUND
from support.ranks.partial_sessions import CASES, STEPS

RANKS = 2


@pytest.mark.parametrize("name", CASES)
def test_a_model_with_norms_of_each_head_trains_as_the_plain_one(gang, name):
    for rank, result in enumerate(gang("partial_sessions.py", RANKS)):
        found = result[name]
        assert found["partial"] == 4  # of queries and of keys, in two layers
        assert len(found["losses"]) == STEPS and max(abs(a - b) for a, b in found["losses"]) <= BOUND, found["losses"]
        assert found["parameters"] <= BOUND, (rank, found)
        assert (found["heads"][1] == 0) == ("evicted" in name), found["heads"]
