"""ZERO-resizing: eq. 1 against the table of the algorithms page, its bounds, and how layers share it."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from heterotp_api.policy import BalancingSettings
from heterotp_api.strategy_blocks import Zero
from heterotp_trainer.balancing.decide import decide
from heterotp_trainer.balancing.prediction import iteration_seconds, pruned_share
from heterotp_trainer.balancing.pruning import columns_for, fixed, prune, reduction_shares, reference_seconds
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.grains import grain_for, grains_of
from heterotp_trainer.plans.linears import Curve, LinearClass
from heterotp_trainer.plans.work_plan import WorkPlan
from heterotp_trainer.plans.work_reduction import WorkReduction
from hypothesis import given, settings
from hypothesis import strategies as st
from support.balancing_world import all_costs, even_costs, history_of, observations, seen

UNLIMITED = 1.0


def pruned(chis, costs=None, limit=UNLIMITED, **fields):
    """Return costs, observation and what the ranks with chi > 1 prune."""
    costs = costs or even_costs(len(chis))
    zero, observed = Zero(**fields), seen([float(chi) for chi in chis])
    stragglers = [rank for rank, chi in enumerate(chis) if chi > 1]
    reference = reference_seconds(costs, observed, zero.criterion)
    return costs, observed, prune(costs, observed, stragglers, zero, reference, limit)


def decided(chis, costs=None, **policy):
    observed = seen([float(chi) for chi in chis])
    settings = BalancingSettings(strategy="ZERO", window=1, **policy)
    return decide(history_of(observed, observed), settings, WorkPlan(), costs or even_costs(len(chis)))


# -- equation 1 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chis", "share"),
    [
        ([2] + [1] * 7, 0.0625),
        ([4] + [1] * 7, 0.0938),
        ([8] + [1] * 7, 0.1094),
        ([2, 1, 1, 1], 0.125),
        ([8, 1, 1, 1], 0.2188),
        ([8, 6, 4, 2, 1, 1, 1, 1], 0.3698),
    ],
    ids=str,
)
def test_deleted_work_to_reach_the_fastest(chis, share):
    costs, observed, reductions = pruned(chis)
    assert pruned_share(costs, reductions) == pytest.approx(share, abs=1e-4)
    assert iteration_seconds(costs, observed, reductions) == pytest.approx(1.0)


def test_the_average_cannot_go_below_1_875():
    costs, observed, reductions = pruned([8] + [1] * 7, criterion="average")
    assert iteration_seconds(costs, observed, reductions) == pytest.approx(1.875, abs=8 / 960)


def test_other_work_counts_in_the_time_but_cannot_be_taken():
    even, observed = even_costs(2), seen([4.0, 2.0], unit=[1.0, 0.5], fixed=0.5)
    taken = prune(even, observed, [0], Zero(), reference_seconds(even, observed, "minimum"), UNLIMITED)
    assert taken == {0: (WorkReduction(600),)}  # r = (5.5 - 3) / 4


@pytest.mark.parametrize(
    ("curve", "columns"),
    [
        (Curve((0.0, 480.0, 960.0), (0.0, 0.8, 1.0)), 660),
        (Curve((0.0, 480.0, 960.0), (0.0, 0.2, 1.0)), 300),
        (Curve((0.0, 480.0, 960.0), (0.0, 0.5, 0.5)), 720),
    ],
    ids=["small-products-are-slow", "large-ones-are", "flat-at-the-end"],
)
def test_columns_buy_time_on_the_measured_curve(curve, columns):
    even = even_costs(2)
    costs = Costs(even.classes, ((curve,), (curve,)), (1, 1))
    assert pruned([2, 1], costs)[2] == {0: (WorkReduction(columns),)}


@pytest.mark.parametrize("seconds", [(0.0, 0.5, 1.0), (0.0, 1.0, 1.0), (0.0, 0.0, 0.0)], ids=str)
def test_a_reduction_of_0_prunes_no_column(seconds):
    even = even_costs(2)
    costs = Costs(even.classes, ((Curve((0.0, 480.0, 960.0), seconds),),) * 2, (1, 1))
    assert columns_for(costs, np.zeros(2), 0.9, None).tolist() == [[0, 0]]


def test_a_rank_without_outputs_of_a_class_prunes_nothing_of_it():
    classes = tuple(LinearClass("fc", "column", (64, 64), outputs, 8, 1) for outputs in ((8, 8), (0, 8)))
    line, nothing = Curve((0.0, 64.0), (0.0, 1.0)), Curve((0.0, 1.0), (0.0, 0.0))
    costs = Costs(classes, ((line, nothing), (line, line)), (1, 1))
    assert columns_for(costs, np.array([0.5, 0.0]), 0.9, None).tolist() == [[32, 0], [0, 0]]


# -- bounds -----------------------------------------------------------------------------------------------


def test_work_above_gamma_max_is_in_the_reason():
    plan = decided([20] + [1] * 7)
    assert plan.reductions == ((0, (WorkReduction(864),)),)
    assert plan.predicted_seconds == pytest.approx(2.0)
    assert plan.reason.endswith("20 s -> 2 s an iteration predicted (1 s above the fastest rank)")
    assert "above the fastest" not in decided([8] + [1] * 7).reason


@pytest.mark.parametrize(
    ("chis", "fields", "columns"),
    [
        ([2, 1], {"grain": 64}, 448),
        ([2, 1], {"grain": 1}, 480),
        ([2, 1], {"grain": 500}, 0),
        ([2, 1], {"grain": 4096}, 0),
        ([8, 1], {"gamma_max": 0.25, "grain": 100}, 200),
        ([8, 1], {"gamma_max": 0.0}, 0),
        ([8, 1], {"gamma_max": 1.0}, 840),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_columns_are_rounded_down_to_blocks(chis, fields, columns):
    assert pruned(chis, **fields)[2] == ({0: (WorkReduction(columns),)} if columns else {})


@pytest.mark.parametrize(
    ("asked", "auto", "columns", "grain"),
    [
        (None, 16, 2048, 16),
        (None, 64, 512, 16),
        (None, 16, 100, 2),
        (None, 16, 40, 1),
        (24, 16, 96, 24),
        (99, 16, 8, 8),
    ],
    ids=["by-device", "an-L-of-32-blocks", "a-power-of-two", "small", "as-asked", "never-above-L"],
)
def test_the_grain(asked, auto, columns, grain):
    assert grain_for(asked, auto, columns) == grain
    assert grains_of(asked, [auto], np.array([[columns]])).tolist() == [[grain]]


def test_a_block_is_not_lost_to_the_rounding_of_floats():
    assert pruned([1.5, 1], even_costs(2, columns=480), grain=8)[2] == {
        0: (WorkReduction(160),)
    }  # 480 / 3 is 159.999...


@pytest.mark.parametrize("selection", ["PriDiffR", "PriDiffE"])
@pytest.mark.parametrize("limit", [0.0, 0.01, 0.1, 0.2])
def test_the_deleted_share_is_bounded_and_used_up(limit, selection):
    costs, _, reductions = pruned([8, 6, 4, 2, 1, 1, 1, 1], limit=limit, selection=selection)
    assert limit - 4 / 960 < pruned_share(costs, reductions) <= limit
    assert bool(reductions) == (limit > 0)


@given(data=st.data(), limit=st.floats(0, 1))
@settings(max_examples=50, deadline=None)
def test_the_deleted_share_is_bounded_whatever_it_costs(data, limit):
    costs = data.draw(all_costs())
    observed = data.draw(observations(costs))
    slow = [rank for rank in range(costs.ranks) if data.draw(st.booleans())]
    reductions = prune(costs, observed, slow, Zero(), reference_seconds(costs, observed, "minimum"), limit)
    assert pruned_share(costs, reductions) <= limit
    assert set(reductions) <= set(slow)


# -- ratios that are given --------------------------------------------------------------------------------


def test_a_fixed_ratio_holds_from_the_first_iteration_on_whatever_the_speeds():
    policy = BalancingSettings(strategy="ZERO", window=1, zero=Zero(fixed_ratio=0.5, ranks=[2, 1], grain=64))
    plan = decide(history_of(), policy, WorkPlan(), even_costs(4))
    assert plan.reductions == ((1, (WorkReduction(448),)), (2, (WorkReduction(448),)))
    assert plan.reason == "ZERO: 50% of the columns of ranks 2 and 1 pruned, as the policy fixes it"
    assert decide(history_of(*[seen([9.0, 1, 1, 1])] * 2), policy, plan, even_costs(4)) is plan


@pytest.mark.parametrize("what", ["pruned", "migrated"])
@pytest.mark.parametrize(("ratio", "columns"), [(0.25, 24), (0.9, 84), (1.0, 100)], ids=str)
def test_a_fixed_ratio_of_one_takes_the_last_columns_too(ratio, columns, what):
    assert fixed(even_costs(2, columns=100), ratio, [1], 12, what) == {1: (WorkReduction(**{what: columns}),)}
    assert not fixed(even_costs(2, columns=100), 0.0, [1], 12, what)


@pytest.mark.parametrize(("gamma_max", "columns"), [(0.9, 480), (0.25, 240)], ids=["half", "gamma-max"])
@pytest.mark.parametrize("chi", [1.2, 8])
def test_pridiff_e_prunes_half_of_a_straggler(chi, gamma_max, columns):
    assert pruned([chi, 1, 1], selection="PriDiffE", gamma_max=gamma_max)[2] == {0: (WorkReduction(columns),)}


def test_a_rank_with_hardly_any_work_is_no_target_time():
    even = even_costs(3)
    costs = replace(even, classes=(replace(even.classes[0], outputs=(32, 32, 1)),))
    observed = seen([4.0, 1.0, 0.03])
    assert reference_seconds(costs, observed, "minimum") == 1.0
    assert reference_seconds(costs, observed, "average") == 2.5


# -- full-work times --------------------------------------------------------------------------------------


def gammas(criterion, chi=8.0, ranks=8, executed=True, steps=8):
    """Return gamma by eq. 1 step after step, from times as executed under the last one, or from full-work times."""
    found, gamma = [], 0.0
    for _ in range(steps):
        matmul = chi * (1 - gamma) if executed else chi
        observed = seen([matmul] + [1.0] * (ranks - 1))
        gamma = float(reduction_shares(observed, [0], reference_seconds(even_costs(ranks), observed, criterion))[0])
        found.append(gamma)
    return found


def test_with_times_as_executed_gamma_oscillates():
    assert gammas("minimum") == [pytest.approx(0.875), 0] * 4
    average = gammas("average")
    turns = [b - a for a, b in itertools.pairwise(average)]
    assert all(a * b < 0 for a, b in itertools.pairwise(turns))
    assert max(average[1:]) < (8 - 1.875) / 8 - 0.05  # and does not come to what eq. 1 asks for


@pytest.mark.parametrize(("criterion", "gamma"), [("minimum", 0.875), ("average", (8 - 1.875) / 8)])
def test_with_full_work_times_gamma_is_constant(criterion, gamma):
    assert gammas(criterion, executed=False) == [pytest.approx(gamma)] * 8


def test_a_rank_that_is_not_slow_is_not_pruned():
    at_it, below, without_matmul, no_straggler = 1.0, 0.5, 0.0, 3.0
    observed = seen([at_it, below, without_matmul, no_straggler], fixed=[0.0, 0.0, 3.0, 0.0])
    assert reduction_shares(observed, [0, 1, 2], 1.0).tolist() == [0] * 4
