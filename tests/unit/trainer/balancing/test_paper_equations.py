"""The paper's equations as printed (preset paper), each against an example computed by hand."""

from dataclasses import replace

import pytest
from heterotp_api.policy import BalancingSettings
from heterotp_api.strategy_blocks import Mig, Semi, Zero
from heterotp_trainer.balancing.decide import decide
from heterotp_trainer.balancing.layer_columns import columns_by_layer
from heterotp_trainer.balancing.paper_equations import balanced_beta, gain, migrating
from heterotp_trainer.balancing.pruning import prune, reference_seconds, timed
from heterotp_trainer.balancing.semi_candidates import SemiProblem
from heterotp_trainer.plans.linears import Curve, Line, Link
from heterotp_trainer.plans.work_plan import WorkPlan
from heterotp_trainer.plans.work_reduction import WorkReduction
from support.balancing_world import even_costs, history_of, seen

PRINTED = Zero(times="measured", gamma_by="time", grain=1)
FOUR_OF_8 = (8.0, 6.0, 4.0, 2.0, 1.0, 1.0, 1.0, 1.0)


def decided(strategy, observed, costs, **policy):
    """Return the plan of `preset: paper` once these times were seen in two windows."""
    settings = BalancingSettings(strategy=strategy, preset="paper", window=1, **policy)
    return decide(history_of(observed, observed), settings, WorkPlan(), costs)


def paper_times(chis):
    """Return what the paper's 1B model takes: products are 0.37 of an iteration of one second."""
    return seen([0.37 * chi for chi in chis], fixed=0.63)


# -- equation 1 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("criterion", "columns"),
    [("average", 480), ("minimum", 720)],  # (4 - 2.5) / 3 and (4 - 1.75) / 3 of 960, by hand
)
def test_gamma_is_the_gap_over_the_matmul_seconds(criterion, columns):
    observed = seen([3.0, 0.75, 0.75, 1.5], fixed=1.0)  # T = 4, 1.75, 1.75, 2.5: the mean is 2.5
    reference = reference_seconds(even_costs(4), observed, criterion)
    assert prune(even_costs(4), observed, [0], PRINTED, reference, 1.0) == {0: (WorkReduction(columns),)}


def test_gamma_is_a_share_of_columns_whatever_their_curve():
    even = even_costs(2)
    costs = replace(even, curves=((Curve((0.0, 480.0, 960.0), (0.0, 0.8, 1.0)),),) * 2)
    observed = seen([2.0, 1.0])
    assert prune(costs, observed, [0], PRINTED, 1.0, 1.0) == {0: (WorkReduction(480),)}
    assert prune(costs, observed, [0], Zero(grain=1), 1.0, 1.0) == {0: (WorkReduction(660),)}


def test_measured_times_are_those_that_the_plan_in_force_leaves():
    """A straggler of chi 4 that prunes half of its columns: T = 2 as executed, T hat = 4."""
    observed = replace(seen([4.0, 1.0]), executed=seen([2.0, 1.0]).full)
    for settings, columns in ((PRINTED, 480), (Zero(grain=1), 720)):  # (2 - 1) / 2 and (4 - 1) / 4
        reference = reference_seconds(even_costs(2), timed(observed, settings), "minimum")
        assert prune(even_costs(2), observed, [0], settings, reference, 1.0) == {0: (WorkReduction(columns),)}


def test_preset_paper_prunes_down_to_the_average():
    plan = decided("ZERO", seen([8.0] + [1.0] * 7), even_costs(8))
    assert plan.reductions == ((0, (WorkReduction(735),)),)  # (8 - 1.875) / 8 of 960
    assert plan.predicted_seconds == pytest.approx(1.875)


# -- PriDiff ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer_ratios", "counts"),
    [("maximum", [40, 50, 90]), ("scaled", [33, 42, 75])],  # max(gamma_k, 0.8 x 0.5) of 100; the sum scaled to 150
)
def test_the_ratio_of_a_layer_is_the_larger_one(layer_ratios, counts):
    settings = Zero(selection="PriDiffR", layer_ratios=layer_ratios)
    assert columns_by_layer(50, [0.1, 0.5, 0.9], settings, 100, 100, 1) == counts


def test_a_layer_prunes_no_more_than_gamma_max_nor_than_what_does_not_migrate():
    settings = Zero(selection="PriDiffR", layer_ratios="maximum", gamma_max=0.7)
    assert columns_by_layer(50, [0.1, 0.9], settings, 100, 100, 1) == [40, 70]
    assert columns_by_layer(50, [0.1, 0.9], settings, 100, 60, 1) == [40, 60]


# -- migration --------------------------------------------------------------------------------------------


def test_mig_brings_the_straggler_to_the_minimum_and_receivers_get_equal_parts():
    observed = seen([4.0, 1.0, 1.0, 1.05])
    plan = decided("MIG", observed, even_costs(4))
    assert plan.reductions == ((0, (WorkReduction(0, 720),)),)  # (4 - 1) / 4 of 960
    assert plan.receivers == ((1, 1.0), (2, 1.0), (3, 1.0))
    assert [piece.columns for piece in plan.pieces(0)] == [240, 240, 240]


def test_equation_2_balances_what_is_printed():
    omega = {"allocation": 0.01, "extraction": Line(0.0, 0.2)}
    costs = even_costs(8, parallel="row", link=Link(broadcast=Line(0.0, 5.2e-7)), **omega)
    observed = seen([8.0] + [1.0] * 7)
    settings = Semi(mig=Mig(parts="equal"))
    beta = balanced_beta(SemiProblem(costs, observed, [0], settings, 0.0), printed=True)
    # c columns migrate: 0.01 + 0.2 (840 - c) / 960 = 160 bytes x 5.2e-7 c + c / (7 x 960)
    columns = (0.01 + 0.2 * 840 / 960) / (0.2 / 960 + 160 * 5.2e-7 + 1 / 6720)
    assert beta * 840 == pytest.approx(columns, abs=8)
    plan = decided("SEMI", observed, costs, semi=Semi(zero=Zero(grain=1), mig=Mig(grain=1)))
    assert plan.reductions == ((0, (WorkReduction(840 - int(beta * 840), int(beta * 840)),)),)


@pytest.mark.parametrize(
    ("x", "seconds"),
    [
        (1, 2.59 - 2.59 / 3.59 / 7 * 2.85),
        (2, 1.85 - (2.59 / 3.59 + 1.85 / 2.85) / 6 * 2.11),
        (3, 1.11 - (2.59 / 3.59 + 1.85 / 2.85 + 1.11 / 2.11) / 5 * 1.37),
        (4, 0.37 - (2.59 / 3.59 + 1.85 / 2.85 + 1.11 / 2.11 + 0.37 / 1.37) / 4 * 1.0),
    ],
)
def test_equation_3_with_the_papers_last_figure(x, seconds):
    problem = SemiProblem(even_costs(8), paper_times(FOUR_OF_8), [0, 1, 2, 3], Semi(), 0.0)
    assert gain(problem, x) == pytest.approx(seconds)
    assert (seconds < 0) == (x == 4)


def test_equation_3_counts_the_transfers_of_all_that_migrates():
    costs = even_costs(8, parallel="row", link=Link(broadcast=Line(0.0, 1e-6)))
    problem = SemiProblem(costs, paper_times(FOUR_OF_8), [0, 1, 2, 3], Semi(), 0.0)
    free = SemiProblem(even_costs(8, parallel="row"), problem.seen, problem.order, Semi(), 0.0)
    # 4 bytes x (8 rows + 32 outputs) x 960 columns, of which 2.59 / 3.59 migrate
    assert gain(free, 1) - gain(problem, 1) == pytest.approx(1e-6 * 160 * 960 * 2.59 / 3.59)


@pytest.mark.parametrize(
    ("slope", "x"), [(0.0, 3), (4e-6, 1), (1e-4, 0)], ids=["free-transfers", "dear-ones", "too-dear-ones"]
)
def test_the_slowest_migrate_up_to_the_first_that_does_not_pay(slope, x):
    costs = even_costs(8, parallel="row", link=Link(*[Line(0.0, slope)] * 3))
    assert migrating(SemiProblem(costs, paper_times(FOUR_OF_8), [0, 1, 2, 3], Semi(), 0.0)) == x


def test_all_stragglers_migrate_where_each_pays():
    observed = seen([0.9 * chi for chi in (8.0, 7.0, *[1.0] * 6)], fixed=0.1)
    assert migrating(SemiProblem(even_costs(8), observed, [0, 1], Semi(), 0.0)) == 2


def test_preset_paper_finds_the_papers_sweet_spot():
    """Three migrate, and the five others compute equal parts of it: the pruning straggler, too."""
    plan = decided("SEMI", paper_times(FOUR_OF_8), even_costs(8), semi=Semi(zero=Zero(grain=1)))
    gammas = [0.37 * (chi - 1) / (0.37 * chi) for chi in FOUR_OF_8[:4]]
    assert [(t.pruned, t.migrated) for _, (t,) in plan.reductions] == [
        *((0, int(gamma * 960 + 1e-6)) for gamma in gammas[:3]),
        (int(gammas[3] * 960 + 1e-6), 0),
    ]
    assert plan.receivers == tuple((rank, 1.0) for rank in range(3, 8))
