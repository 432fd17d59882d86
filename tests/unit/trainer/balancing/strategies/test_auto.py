"""AUTO: lossless first; what stragglers prune until their units move."""

import pytest
from support.resharding_world import DEAR, machine, one, simulation, train


@pytest.mark.parametrize(("limit", "prunes"), [(None, False), (0.0, False), (0.2, True)])
def test_stragglers_prune_until_units_move_only_where_the_policy_allows_loss(limit, prunes):
    run = simulation(machine(link=DEAR), strategy="AUTO", max_pruned_share=limit)
    train(run, one(1.0), 10)
    after = train(run, one(4.0), 8)
    assert not any(each.moved for each in after)
    assert (after[-1].deleted > 0) == prunes
