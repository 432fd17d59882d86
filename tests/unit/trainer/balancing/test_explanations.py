"""The numbers in sentences: chi as the status shows it, predictions of all that a measured iteration contains."""

import pytest
from heterotp_api.policy import BalancingSettings
from heterotp_trainer.balancing.decide import decide
from heterotp_trainer.balancing.detection import slowdowns
from heterotp_trainer.balancing.explanations import seconds_named
from heterotp_trainer.balancing.history import Observation
from heterotp_trainer.boundary.exchange import Report
from heterotp_trainer.devices.phase_clock import PHASES
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.plans.work_plan import Cause, WorkPlan
from heterotp_trainer.rebalancing.balancer import observation
from support.balancing_world import even_costs, history_of
from support.resharding_world import machine, one, simulation, train

WAIT, ASIDE = 0.25, 0.5


@pytest.mark.parametrize("strategy", ["ZERO", "MIG", "SEMI"])
def test_a_prediction_contains_waits_data_and_control(strategy):
    def planned(aside):
        seen = Observation.of(one(8.0), [0.0] * 8, [0.0] * 8, [WAIT] * 8, aside=[aside] * 8)
        settings = BalancingSettings(strategy=strategy, window=1)
        return decide(history_of(seen), settings, WorkPlan(), even_costs(8))

    bare, plan = planned(0.0), planned(ASIDE)
    assert (bare.untouched_seconds, plan.untouched_seconds) == pytest.approx((8.0 + WAIT, 8.0 + WAIT + ASIDE))
    assert plan.predicted_seconds == pytest.approx(bare.predicted_seconds + ASIDE)
    assert plan.work == bare.work
    times = f"{plan.untouched_seconds:.3g} s -> {plan.predicted_seconds:.3g} s an iteration predicted"
    assert times in plan.reason
    assert ("above the fastest" in plan.reason) == ("above the fastest" in bare.reason)


def test_data_and_control_of_a_rank_are_set_aside():
    seconds = dict.fromkeys(PHASES, 1.0) | {"data": 0.25, "control": 0.5}
    assert observation([Report(1, seconds=seconds)] * 2).aside.tolist() == [0.75, 0.75]


def test_attention_and_vocabulary_of_a_rank_are_observed_apart():
    seen = observation([Report(1, attention=0.5, vocabulary=0.125, seconds=dict.fromkeys(PHASES, 1.0))] * 2)
    assert (seen.attention.tolist(), seen.vocabulary.tolist()) == ([0.5] * 2, [0.125] * 2)
    assert seen.unit_of("ffn").tolist() == [0.375] * 2


def test_a_move_names_the_rows_of_the_vocabulary():
    run = simulation(machine(rows=50_257))
    train(run, one(1.0), 20)
    train(run, one(4.0, place=2), 12)
    moved = 50_257 // 8 - run.plan.ownership.unit_plan.counts("vocab")[2]
    assert f"{moved} of 50257 vocabulary rows move (" in run.plan.reason


def checked_move(run, before, chis):
    """Check that a move's sentence shows the seconds of the iterations before and after it."""
    plan, after = run.plan, train(run, chis, 1)[0].seconds
    assert plan.cause is Cause.UNITS_MOVED
    assert (plan.untouched_seconds, plan.predicted_seconds) == pytest.approx((before, after), rel=0.01)
    times = f"{seconds_named(plan.untouched_seconds)} -> {seconds_named(plan.predicted_seconds)} an iteration predicted"
    assert plan.reason.endswith(times)


def test_the_sentence_of_a_move_contains_the_waits_of_an_iteration():
    run, chis = simulation(machine(wait=WAIT)), one(4.0, place=2)
    train(run, one(1.0), 20)
    before = train(run, chis, 12)[0].seconds
    checked_move(run, before, chis)


def test_a_move_to_even_shares_contains_the_waits_although_no_rank_was_slow():
    uneven = UnitPlan.from_counts([14, 6, 6, 6], [448, 192, 192, 192])
    run, chis = simulation(machine(4, plan=uneven, wait=WAIT)), one(1.0, ranks=4)
    before = run.step(chis).seconds
    while run.plan.cause is not Cause.UNITS_MOVED:
        run.step(chis)
    assert run.plan.base_wait == WAIT
    checked_move(run, before, chis)


def test_chi_in_a_sentence_is_that_of_the_first_shares_also_after_units_have_moved():
    run = simulation(max_pruned_share=0.3)
    train(run, one(1.0), 20)
    train(run, one(4.0, place=2), 30)
    assert run.plan.ownership.moved_at is not None and run.plan.stragglers == ()
    while not run.plan.stragglers:
        run.step(one(8.0, place=2))
    unit_plan = run.plan.ownership.unit_plan
    shown = slowdowns(run.seen(one(8.0, place=2)), unit_plan, (), run.machine.costs.owned_by(unit_plan))
    assert shown == pytest.approx(one(8.0, place=2), rel=0.01)
    assert run.plan.reason.startswith("rank 2 is 8.0x slower")
