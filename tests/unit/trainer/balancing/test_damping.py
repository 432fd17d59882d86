"""Damping: decisions that follow a speed back and forth become rare, others are as fast as without it."""

import numpy as np
import pytest
from heterotp_trainer.balancing.damping import LASTING, MOST, changed, waiting, watched, withdrawn
from heterotp_trainer.plans.alternation import Alternation
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.rebalancing.held_plan import HeldPlan
from support.resharding_world import machine, one, simulation, train

WINDOW = 5
STRATEGIES = ["ZERO", "MIG", "SEMI", "RESHARD", "AUTO"]
HEALTHY = one(1.0)


def toggle(run, half_period, count, chi=3.0, before=HEALTHY):
    """Train under a rank 0 that is `chi` times slower in every second half period."""
    return [run.step(one(chi) if (i // half_period) % 2 else before) for i in range(count)]


def found_after(run, chis, rank, most=40):
    """Return the iterations until the run reacts to the rank: it is a straggler, or units move."""
    for count in range(1, most):
        moved = run.step(chis).moved
        if moved or rank in run.plan.stragglers:
            return count
    raise AssertionError(f"no reaction in {most} iterations")


# -- training ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("half_period", [3, 6])
def test_a_speed_that_goes_back_and_forth_makes_few_decisions(strategy, half_period):
    run = simulation(strategy=strategy)
    toggle(run, half_period, 200)
    early = run.plan.decision_id
    ran = toggle(run, half_period, 200)
    assert early <= 12
    assert run.plan.decision_id - early <= 4
    assert sum(each.moved for each in ran) <= 2


@pytest.mark.parametrize("half_period", [4, 6])
def test_the_time_of_a_straggler_that_goes_back_and_forth_is_planned_for_few_times(half_period):
    run = simulation(strategy="ZERO")
    train(run, one(2.0), 20)
    toggle(run, half_period, 200, chi=4.0, before=one(2.0))
    assert run.plan.decision_id <= 10


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_another_rank_that_becomes_slower_is_found_as_fast_as_without_alternations(strategy):
    fresh, run = simulation(strategy=strategy), simulation(strategy=strategy)
    train(fresh, HEALTHY, 40)
    toggle(run, 4, 120)
    train(run, HEALTHY, 2 * WINDOW)
    chis = one(4.0, place=3)
    assert found_after(run, chis, 3) <= found_after(fresh, chis, 3)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_alternating_rank_that_stays_slow_is_found_and_after_a_calm_time_at_once(strategy):
    fresh, run = simulation(strategy=strategy), simulation(strategy=strategy)
    train(fresh, HEALTHY, 40)
    at_once = found_after(fresh, one(4.0), 0)
    toggle(run, 4, 120)
    train(run, HEALTHY, WINDOW)
    assert found_after(run, one(4.0), 0, most=200) <= at_once + 2**MOST * WINDOW
    train(run, HEALTHY, (MOST * LASTING + 20) * WINDOW)
    assert found_after(run, one(4.0), 0) <= at_once


@pytest.mark.parametrize("strategy", ["ZERO", "SEMI"])
def test_a_slow_down_that_lasts_is_followed_each_time(strategy):
    run = simulation(strategy=strategy)
    flagged = []
    for _ in range(5):
        train(run, HEALTHY, 4 * WINDOW)
        flagged.append(found_after(run, one(3.0), 0))
        train(run, one(3.0), 4 * WINDOW)
    assert len(set(flagged)) == 1


@pytest.mark.parametrize("strategy", ["ZERO", "AUTO"])
def test_a_changed_policy_reacts_at_once(strategy):
    run = simulation(strategy=strategy)
    toggle(run, 4, 200)
    train(run, HEALTHY, 20)
    assert run.plan.alternations or run.plan.ownership.alternations
    run.policy = run.policy.model_copy(update={"replan_threshold": 0.2})
    run.step(HEALTHY)
    assert run.plan.alternations == run.plan.ownership.alternations == ()


@pytest.mark.parametrize("noise", [0.0, 0.05], ids=["exact", "noise-5-percent"])
@pytest.mark.parametrize("strategy", ["ZERO", "SEMI", "AUTO"])
def test_whole_heads_of_a_healthy_job_delete_no_work(strategy, noise):
    plan = UnitPlan.from_speeds([1.0, 1.0, 0.25], 6, 1024)
    assert plan.counts("heads") == (3, 3, 0)
    run = simulation(machine(3, plan=plan, slowness=(1.0, 1.0, 4.0)), strategy=strategy)
    random = np.random.default_rng(0)
    for _ in range(200):
        assert run.step((random.normal(1.0, noise, 3) * [1.0, 1.0, 4.0]).tolist()).deleted == 0.0
    assert run.plan.decision_id <= 3


# -- a checkpoint -----------------------------------------------------------------------------------------


def test_a_checkpoint_holds_what_is_kept_of_alternating_ranks():
    run = simulation(strategy="AUTO")
    toggle(run, 4, 100)
    held = HeldPlan(run.policy, run.plan, "", [16] * 8, 100)
    restored = HeldPlan.from_json(held.to_json())
    assert run.plan.alternations and run.plan.ownership.alternations
    assert restored.observations == 100
    assert restored.plan.alternations == run.plan.alternations
    assert restored.plan.ownership.alternations == run.plan.ownership.alternations


# -- the rule ---------------------------------------------------------------------------------------------


def ready_after(records, slower, start):
    """Return the observations for which a change of rank 0 must be due."""
    for now in range(start, start + 1000):
        records = watched(records, {0: slower}, now, WINDOW)
        if 0 not in waiting(records, now, WINDOW):
            return now - start
    raise AssertionError


def test_a_change_that_reverses_the_last_one_soon_waits_twice_as_long_each_time():
    records, now, waits, slower = (), 0, [], True
    for _ in range(7):
        wait = ready_after(records, slower, now + WINDOW)
        records = watched(records, {0: slower}, now + WINDOW, WINDOW)
        now += WINDOW + wait
        records = changed(records, {0: slower}, now, WINDOW)
        waits.append(wait)
        slower = not slower
    assert waits == [WINDOW * n for n in (0, 0, 1, 3, 7, 15, 15)]


@pytest.mark.parametrize(
    ("windows", "level"), [(1, 3), (LASTING, 2), (2 * LASTING, 1), (3 * LASTING, 0), (9 * LASTING, 0)], ids=str
)
def test_time_without_a_change_that_is_due_lowers_the_level(windows, level):
    records = (Alternation(0, False, 3, 100),)
    (found,) = watched(records, {0: True}, 100 + windows * WINDOW, WINDOW)
    assert found.level == level


def test_an_interruption_starts_the_wait_again():
    records = watched((Alternation(0, False, 2, 100),), {0: True}, 101, WINDOW)
    records = watched(records, {}, 115, WINDOW)
    assert records == (Alternation(0, False, 2, 115),)
    assert waiting(watched(records, {0: True}, 116, WINDOW), 116, WINDOW) == {0}


def test_a_further_change_in_the_same_direction_never_waits():
    records = (Alternation(0, True, 3, 100),)
    assert watched(records, {0: True}, 101, WINDOW) == changed(records, {0: True}, 101, WINDOW) == records


def test_a_proposal_that_is_withdrawn_counts_as_a_reversal():
    assert withdrawn((), {2: True}, 50, WINDOW) == (Alternation(2, False, 1, 50),)
