"""The shares of a rank that comes back."""

import pytest
from heterotp_trainer.membership.succession import shared_out, speed_of_newcomer, widened
from heterotp_trainer.plans.unit_plan import UnitPlan


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_rank_that_comes_back_owns_nothing_at_first(place):
    before = UnitPlan.from_counts([2, 2], [5, 3], [7, 0])
    after = widened(before, place)
    assert [after.counts(family)[place] for family in ("heads", "ffn", "vocab")] == [0, 0, 0]
    others = [rank for rank in range(3) if rank != place]
    assert [after.ranges("ffn", rank) for rank in others] == [before.ranges("ffn", rank) for rank in range(2)]
    assert after.weights == before.weights
    assert shared_out(after, [1.0, 1.0, 1.0]).counts("ffn") in {(3, 3, 2), (3, 2, 3), (2, 3, 3)}


@pytest.mark.parametrize(
    ("known", "declared", "speed"),
    [
        ({0: 1.0, 2: 1.0}, [1.0, 1.0, 1.0], 1.0),
        ({0: 2.0, 2: 1.0}, [2.0, 0.5, 1.0], 0.5),
        ({0: 4.0, 2: 2.0}, [2.0, 0.5, 1.0], 1.0),
        ({0: 3.0, 2: 1.0}, [None, None, None], 2.0),
        ({0: 3.0, 2: 1.0}, [1.0, None, 1.0], 2.0),
    ],
)
def test_its_speed_is_that_which_was_declared_in_relation_to_the_others(known, declared, speed):
    assert speed_of_newcomer(known, declared, 1) == pytest.approx(speed)
