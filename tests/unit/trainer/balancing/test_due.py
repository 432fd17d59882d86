"""What happens when transfers turn out slower or faster than calibration measured them: the plan is priced again."""

from dataclasses import replace

import pytest
from heterotp_api.policy import BalancingSettings
from heterotp_api.strategy_blocks import Semi
from heterotp_trainer.balancing.decide import decide
from heterotp_trainer.balancing.due import MOST_REPRICINGS
from heterotp_trainer.plans.linears import Line, Link
from heterotp_trainer.plans.work_plan import WorkPlan
from support.balancing_world import even_costs, history_of, seen

SLOW = [8.0] + [1.0] * 7
LINK = Link(*[Line(1e-4, 5e-7)] * 3)
SEMI = BalancingSettings(strategy="SEMI", window=1, replan_threshold=0.02, semi=Semi(time_tolerance=0.15))


def planned(costs, settings=SEMI, chis=SLOW):
    """Return a history of a straggler, and the plan that is made of it."""
    history = history_of(*[seen(chis)] * 2)
    return history, decide(history, settings, WorkPlan(), costs)


def dearer(costs, factor):
    return replace(costs, link=costs.link.scaled(factor))


def test_dearer_transfers_prune_more_and_cheaper_ones_migrate_more():
    costs = even_costs(8, parallel="row", link=LINK)
    history, plan = planned(costs)
    pruned = {}
    for factor in (0.5, 4.0):
        found = decide(history, SEMI, plan, dearer(costs, factor))
        assert (found.decision_id, found.repriced) == (plan.decision_id + 1, 1)
        pruned[factor] = found.reductions_by_rank[0][0].pruned
    assert pruned[0.5] < plan.reductions_by_rank[0][0].pruned < pruned[4.0]


# its transfers are 0.076 of 1.147 s
@pytest.mark.parametrize(
    ("factor", "again"), [(1.0, False), (1.29, False), (1.31, True), (0.71, False), (0.69, True)], ids=str
)
def test_only_prices_that_move_an_iteration_beyond_the_threshold_count(factor, again):
    costs = even_costs(8, parallel="row", link=LINK)
    history, plan = planned(costs)
    found = decide(history, SEMI, plan, dearer(costs, factor))
    assert (found is not plan) == again


def test_work_that_stays_the_same_keeps_its_number_and_gets_the_right_prediction():
    costs = even_costs(8, parallel="row", link=LINK)
    mig = BalancingSettings(strategy="SEMI", window=1, semi=Semi(time_tolerance=10))  # all migrates, whatever it costs
    history, plan = planned(costs, mig)
    history.add(
        seen([chi * noise for chi, noise in zip(SLOW, (1.02, 0.99, 1.01, 1.0, 0.98, 1.0, 1.01, 0.99), strict=True)])
    )
    found = decide(history, mig, plan, dearer(costs, 2.0))
    assert (found.decision_id, found.hash, found.work) == (plan.decision_id, plan.hash, plan.work)
    assert found.predicted_seconds > plan.predicted_seconds
    assert decide(history, mig, found, dearer(costs, 2.0)) is found


def test_two_plans_that_miss_their_predictions_do_not_alternate():
    costs = even_costs(8, parallel="row", link=LINK)
    history, plan = planned(costs)
    decision_ids = [plan.decision_id]
    for turn in range(10):
        plan = decide(history, SEMI, plan, dearer(costs, 4.0 if turn % 2 else 0.25))
        decision_ids.append(plan.decision_id)
    assert decision_ids[-1] == decision_ids[0] + MOST_REPRICINGS
    history.add(seen([16.0, *SLOW[1:]]))  # another slowness is another case
    assert decide(history, SEMI, plan, costs).repriced == 0
