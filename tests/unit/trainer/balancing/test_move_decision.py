"""When units move: the decision in simulated training, from onset to recovery."""

import numpy as np
import pytest
from heterotp_api.strategy_blocks import Reshard
from heterotp_trainer.balancing.decide import decide
from heterotp_trainer.balancing.history import Observation
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.plans.work_plan import Cause
from support.resharding_world import DEAR, HEADS, UNITS, machine, measured, one, simulation, train

FLUID = {2.0: 8 / 7.5, 4.0: 8 / 7.25, 8.0: 8 / 7.125}


def moves(iterations):
    return [number for number, each in enumerate(iterations) if each.moved_seconds]


@pytest.mark.parametrize("strategy", ["RESHARD", "AUTO"])
@pytest.mark.parametrize("chi", [2.0, 4.0, 8.0])
def test_a_straggler_is_balanced_within_ten_iterations_and_near_the_limit(chi, strategy):
    run = simulation(strategy=strategy)
    train(run, one(1.0), 20)
    after = train(run, one(chi), 30)
    assert len(moves(after)) == 1
    assert moves(after)[0] < 9
    limit = 0.6 + 0.4 * FLUID[chi]
    # heads are whole: 32 over 8 ranks
    assert after[-1].seconds <= limit * 1.05
    assert after[0].seconds == pytest.approx(0.6 + 0.4 * chi)
    assert all(each.deleted == 0 for each in after)


@pytest.mark.parametrize("other", [0.0, 0.02], ids=["products alone", "other work, too"])
@pytest.mark.parametrize("chi", [2.0, 8.0])
def test_the_vocabulary_is_balanced_beside_heads_and_hidden_units(chi, other):
    run = simulation(machine(rows=50_257, unit_seconds=(other, 0.0, other)), strategy="RESHARD")
    first = run.machine.unit_plan
    train(run, one(1.0), 20)
    after = train(run, one(chi), 30)
    assert len(moves(after)) == 1
    assert after[-1].seconds <= (0.6 + 2 * other + 0.6 * FLUID[chi]) * 1.05
    rows = run.plan.ownership.unit_plan.counts("vocab")
    assert sum(rows) == 50_257 and rows[0] == pytest.approx(first.counts("vocab")[0] * FLUID[chi] / chi, rel=0.25)
    train(run, one(1.0), 30)
    assert run.plan.ownership.unit_plan == first


def test_each_sentence_belongs_to_one_decision_and_a_proposal_has_none():
    run = simulation()
    plans = [run.plan]
    for iteration in range(60):
        run.step(one(4.0 if 20 <= iteration < 40 else 1.0))
        plans.append(run.plan)
    reasons = {plan.explained_id: plan.reason for plan in plans}
    assert [reasons[plan.explained_id] for plan in plans] == [plan.reason for plan in plans]
    assert len(set(reasons.values())) == len(reasons) > 3
    asking = [plan for plan in plans if plan.ownership.proposal is not None]
    assert asking and all(plan.explained_id < plan.ownership.proposal.decision_id for plan in asking)


def test_units_return_to_even_shares_when_the_straggler_recovers():
    run = simulation()
    train(run, one(4.0), 30)
    assert run.plan.ownership.unit_plan != run.machine.unit_plan
    after = train(run, one(1.0), 30)
    assert len(moves(after)) == 1
    assert run.plan.ownership.unit_plan == UnitPlan.even(8, HEADS, UNITS)
    assert after[-1].seconds == pytest.approx(1.0)


def test_units_return_to_declared_shares():
    speeds = [0.5, 0.5] + [1.0] * 6
    plan = UnitPlan.from_speeds(speeds, HEADS, UNITS)
    run = simulation(machine(plan=plan, slowness=tuple(1 / each for each in speeds)))
    usual = 1 / np.array(speeds)
    train(run, usual.tolist(), 10)
    train(run, (usual * one(4.0, place=3)).tolist(), 30)
    assert run.plan.ownership.unit_plan != plan
    draw = np.random.default_rng(0)
    for _ in range(30):
        run.step((usual * (1 + draw.normal(0, 0.01, 8))).tolist())
    assert run.plan.ownership.unit_plan.counts("ffn") == plan.counts("ffn")
    assert run.plan.ownership.unit_plan.counts("heads") == plan.counts("heads")


def test_without_return_to_even_a_recovered_rank_keeps_its_small_share():
    run = simulation(reshard={"return_to_even": False})
    train(run, one(4.0), 30)
    skewed = run.plan.ownership.unit_plan
    assert moves(train(run, one(1.0), 60)) == []
    assert run.plan.ownership.unit_plan == skewed
    assert moves(train(run, one(4.0, place=5), 30))  # another rank became slow


def test_a_rank_that_is_slow_from_the_start_is_detected():
    run = simulation()
    assert len(moves(train(run, one(4.0), 20))) == 1


def test_declared_speeds_are_no_reason_to_move():
    plan = UnitPlan.from_speeds([0.25] + [1.0] * 7, HEADS, UNITS)
    run = simulation(machine(plan=plan, slowness=(4.0,) + (1.0,) * 7))
    after = train(run, one(4.0), 60)
    assert moves(after) == []
    assert run.plan.stragglers == ()


def test_speeds_declared_wrongly_are_corrected():
    plan = UnitPlan.from_speeds([0.25] + [1.0] * 7, HEADS, UNITS)
    run = simulation(machine(plan=plan, slowness=(4.0,) + (1.0,) * 7))
    train(run, one(1.0), 30)
    assert run.plan.ownership.unit_plan == UnitPlan.even(8, HEADS, UNITS)


def test_a_move_waits_until_it_is_worth_its_price():
    run = simulation(machine(link=DEAR))
    train(run, one(1.0), 20)
    after = train(run, one(2.0), 90)
    (number,) = moves(after)
    lost = sum(each.seconds - after[-1].seconds for each in after[:number])
    assert (
        after[number].moved_seconds <= lost < after[number].moved_seconds + 4 * (after[0].seconds - after[-1].seconds)
    )


def test_a_short_slow_down_moves_nothing():
    run = simulation(machine(link=DEAR))
    for _ in range(20):
        assert moves(train(run, one(1.0), 12) + train(run, one(2.0), 7)) == []


def test_noise_moves_nothing():
    draw = np.random.default_rng(0)
    run = simulation()
    for _ in range(3000):
        assert not run.step((1 + draw.normal(0, 0.03, 8)).tolist()).moved_seconds


def test_pruning_bridges_the_time_until_units_move_where_loss_is_allowed():
    run = simulation(machine(link=DEAR), max_pruned_share=0.2)
    train(run, one(1.0), 20)
    after = train(run, one(4.0), 60)
    (number,) = moves(after)
    assert [each.deleted > 0 for each in after[6:number]] == [True] * (number - 6)
    assert max(each.seconds for each in after[6:number]) < 0.7 * after[0].seconds
    assert after[-1].deleted == 0
    assert max(each.deleted for each in after) <= 0.2


@pytest.mark.parametrize("strategy", ["None", "ZERO", "MIG", "SEMI"])
def test_other_strategies_move_no_units(strategy):
    run = simulation(strategy=strategy)
    assert moves(train(run, one(4.0), 40)) == []
    assert run.plan.ownership.unit_plan == run.machine.unit_plan


def test_units_stay_when_the_policy_stops_moving_them():
    run = simulation()
    train(run, one(4.0), 20)
    moved = run.plan.ownership.unit_plan
    run.policy = run.policy.model_copy(update={"strategy": "None", "max_pruned_share": None})
    after = train(run, one(4.0), 20)
    assert moves(after) == [] and run.plan.ownership.unit_plan == moved
    assert after[-1].seconds < 1.1


def test_a_policy_that_no_longer_moves_units_takes_a_proposal_back():
    run = simulation()
    while run.plan.ownership.proposal is None:
        run.step(one(4.0))
    run.policy = run.policy.model_copy(update={"strategy": "None", "max_pruned_share": None})
    assert moves(train(run, one(4.0), 20)) == []
    assert run.plan.ownership.proposal is None


def test_eviction_is_done_at_once_and_undone():
    run = simulation(strategy="RESHARD", reshard={"evict": [3]})
    train(run, one(1.0), 12)
    unit_plan = run.plan.ownership.unit_plan
    assert (unit_plan.counts("heads")[3], unit_plan.counts("ffn")[3]) == (0, 0)
    assert "evicts rank 3" in run.plan.reason
    run.policy = run.policy.model_copy(update={"reshard": None})
    train(run, one(1.0), 12)
    assert run.plan.ownership.unit_plan == UnitPlan.even(8, HEADS, UNITS)
    assert "evicts no rank any more" in run.plan.reason


def test_recovery_of_a_rank_without_units_is_detected():
    run = simulation(strategy="RESHARD", reshard={"min_units": 0})
    train(run, one(40.0), 30)
    assert run.plan.ownership.unit_plan.counts("heads")[0] == 0
    train(run, one(1.0), 30)
    assert run.plan.ownership.unit_plan == UnitPlan.even(8, HEADS, UNITS)


def test_whole_heads_are_no_reason_for_a_straggler():
    run = simulation()
    after = train(run, [8.0, 6.0, 4.0, 2.0, 1.0, 1.0, 1.0, 1.0], 80)
    assert len(moves(after)) == 1
    assert run.plan.stragglers == ()


def test_a_limit_that_cannot_be_kept_is_a_reason_and_nothing_moves():
    run = simulation(reshard={"memory_limit_bytes": 1})
    assert moves(train(run, one(4.0), 30)) == []
    assert run.plan.reason == "AUTO: no shares keep minUnits and memoryLimitBytes: units stay"
    decision_id = run.plan.decision_id
    train(run, one(4.0), 10)
    assert run.plan.decision_id == decision_id  # decided once


def test_the_reason_names_ranks_units_bytes_and_seconds():
    run = simulation()
    train(run, one(1.0), 20)
    train(run, one(4.0, place=2), 12)
    words = run.plan.reason
    assert words.startswith("rank 2 is 4.0x slower than expected: 3 of 32 heads and ")
    for part in ("hidden units move (", "KiB, ", " s expected, ", " s lost before); ", " -> ", "an iteration"):
        assert part in words
    assert run.plan.predicted_seconds == pytest.approx(train(run, one(4.0, place=2), 1)[0].seconds)


def test_several_stragglers_and_a_recovered_one_are_distinguished():
    run = simulation()
    train(run, one(4.0, place=1), 30)
    train(run, one(4.0, place=6), 12)
    words = run.plan.reason
    assert "rank 6 is 4.0x slower than expected" in words and "rank 1 is 4.0x faster than expected" in words


def test_a_straggler_that_is_well_again_before_its_units_leave_keeps_them():
    run = simulation()
    train(run, one(1.0), 20)
    while run.plan.ownership.proposal is None:
        run.step(one(4.0))
    assert moves(train(run, one(1.0), 40)) == []
    assert run.plan.ownership.unit_plan == run.machine.unit_plan


def test_stragglers_of_the_first_window_do_not_depend_on_the_unit_of_time():
    """The first shares are known by relative speeds: half of the ranks being slow is seen in the first full window."""
    for matmul in (0.1, 0.4, 3.0):
        run = simulation(machine(matmul=matmul), window=2, max_pruned_share=0.2)
        while run.plan.ownership.relative:
            run.step([1.0] * 4 + [2.0] * 4)
        assert run.plan.stragglers == (4, 5, 6, 7)


@pytest.mark.parametrize("strategy", ["AUTO", "RESHARD"])
@pytest.mark.parametrize(("limit", "prunes"), [(None, False), (0.0, False), (0.2, True)])
def test_stragglers_prune_until_units_move_only_where_the_policy_allows_loss(strategy, limit, prunes):
    run = simulation(machine(link=DEAR), strategy=strategy, max_pruned_share=limit)
    train(run, one(1.0), 10)
    after = train(run, one(4.0), 8)
    assert not any(each.moved for each in after)
    assert (after[-1].deleted > 0) == prunes


# -- answers --------------------------------------------------------------------------------------------------


def proposed():
    """Return a run whose ranks were just asked for memory."""
    run = simulation()
    while run.plan.ownership.proposal is None:
        run.step(one(4.0))
    return run


def answered(run, *answers):
    return decide(run._history, run.policy, run.plan, run._costs, answers)


def test_units_move_when_every_rank_has_the_memory():
    run = proposed()
    decision_id, wanted = run.plan.ownership.proposal.decision_id, run.plan.ownership.proposal.unit_plan
    for waiting in ([], [0] * 8, [decision_id] * 7 + [0], [decision_id - 1] * 8):
        assert answered(run, *waiting) is run.plan
    plan = answered(run, *[decision_id] * 8)
    assert plan.ownership.unit_plan == wanted and plan.ownership.proposal is None
    assert plan.hash != run.plan.hash


def test_a_rank_without_memory_gets_no_new_proposal_for_a_while():
    run = proposed()
    decision_id = run.plan.ownership.proposal.decision_id
    assert run.plan.ownership.lost_seconds > 0
    plan = answered(run, *[decision_id] * 6, -decision_id, -decision_id)
    assert plan.ownership.lost_seconds == 0
    assert plan.ownership.unit_plan == run.machine.unit_plan and plan.ownership.proposal is None
    assert plan.reason.endswith("ranks 6 and 7 lacked memory for it: units stay where they are")
    run.plan = plan
    draw = np.random.default_rng(0)  # with noise the best shares are never quite the same
    for _ in range(95):
        run.step((np.array(one(4.0)) * (1 + draw.normal(0, 0.02, 8))).tolist())
        assert run.plan.ownership.proposal is None
    assert len(moves(train(run, one(4.0), 20))) == 1


def test_a_proposal_that_is_no_longer_worth_it_is_not_told_as_a_decision():
    run = proposed()
    decision_id = run.plan.ownership.proposal.decision_id
    for _ in range(10):
        run._history.add(measured(run.machine, [1.0] * 8))
    plan = answered(run, *[decision_id] * 8)
    assert plan.ownership.proposal is None and plan.ownership.unit_plan == run.machine.unit_plan
    assert plan.cause is Cause.NO_STRAGGLER  # what the newest window shows, and no word about the move


def test_a_limit_is_kept_although_all_ranks_are_as_fast_as_expected():
    plan = UnitPlan.from_speeds([4.0] + [1.0] * 7, HEADS, UNITS)
    found = machine(plan=plan, slowness=(0.25,) + (1.0,) * 7)
    whole = HEADS * found.costs.unit_move.heads_bytes + UNITS * found.costs.unit_move.ffn_bytes
    run = simulation(found)
    fast = [0.25] + [1.0] * 7
    assert moves(train(run, fast, 30)) == []
    run.policy = run.policy.model_copy(update={"reshard": Reshard(memory_limit_bytes=int(0.2 * whole))})
    assert len(moves(train(run, fast, 30))) == 1
    assert run.plan.ownership.unit_plan.counts("ffn")[0] <= 0.2 * UNITS
    assert run.plan.reason.startswith("shares do not keep the policy's minUnits or memoryLimitBytes: ")


def test_a_rank_that_is_slow_at_times_does_not_delay_a_move():
    run = simulation(machine(link=DEAR))
    train(run, one(1.0), 20)
    flickering = [one(4.0), [4.0, 1.0, 1.0, 1.0, 1.0, 1.3, 1.0, 1.0]]
    after = [each for n in range(12) for each in train(run, flickering[n % 2], 9)]
    (number,) = moves(after)
    lost = sum(each.seconds - after[-1].seconds for each in after[:number])
    assert lost < after[number].moved_seconds + 4 * (after[0].seconds - after[-1].seconds)


def test_the_hash_of_a_plan_covers_owners_and_the_proposal():
    run = proposed()
    asked = run.plan
    assert asked.hash != simulation().plan.hash
    assert answered(run, *[asked.ownership.proposal.decision_id] * 8).work == asked.work


def test_nothing_is_decided_before_anything_was_measured():
    run = simulation()
    empty = type(run._history)(5)
    assert decide(empty, run.policy, run.plan, run._costs).ownership == run.plan.ownership
    empty.add(Observation.of([1.0] * 8, [0.0] * 8, [0.0] * 8, [0.0] * 8))
    assert decide(empty, run.policy, run.plan, run._costs).ownership == run.plan.ownership
