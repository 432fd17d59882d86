"""What balancing saved, counted by each iteration's own times."""

from dataclasses import replace

import pytest
from heterotp_trainer.boundary.exchange import Report
from heterotp_trainer.boundary.saved_time import SavedTime
from heterotp_trainer.devices.phase_clock import PHASES
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.linears import Curve, LinearClass
from heterotp_trainer.plans.ownership import Ownership
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.plans.work_plan import WorkPlan

REDUCED = ((1, ()),)  # some work of rank 1


def reports(iteration, *matmul):
    """Return the reports of ranks whose products took so many seconds; an iteration takes 0.9375 s beside them."""
    rest = {"wait": 0.5, "fixed": 0.25, "data": 0.0625, "control": 0.125}
    spent = [dict.fromkeys(PHASES, 0.0) | {"matmul": value} | rest for value in matmul]
    return tuple(Report(iteration, full=each["matmul"], seconds=each) for each in spent)


def reduced(iteration, matmul, full, decision_id=7):
    """Return the reports of two ranks, the second of which computes a part of what it would."""
    first, second = reports(iteration, 1.0, matmul)
    return replace(first, decision_id=decision_id), replace(second, full=full, decision_id=decision_id)


@pytest.fixture(autouse=True)
def a_quarter_is_deleted(monkeypatch):
    """The costs of these tests know no columns: a plan with reductions deletes a quarter of all work."""
    monkeypatch.setattr("heterotp_trainer.boundary.saved_time.pruned_share", lambda costs, reductions: 0.25)


def saved_time():
    return SavedTime(UnitPlan.even(2, 4, 16))


def plan(decision_id, reductions=REDUCED):
    return WorkPlan(decision_id=decision_id, reductions=reductions, base_wait=0.5)


def test_saved_time_is_counted_with_the_times_of_each_iteration():
    saved = saved_time()
    saved.take(())
    saved.decided(plan(7), None)
    saved.take(reports(1, 1.0, 4.0))  # of the plan before
    assert saved.seconds == 0
    # 4.0 + 0.25 fixed + 0.5 least wait + 0.1875 data and control, where 1.9375 were needed
    assert saved.untouched(reduced(2, 1.0, 4.0), saved.work) == 4.9375
    saved.take(reduced(2, 1.0, 4.0))
    assert saved.seconds == 3.0
    saved.take(reduced(3, 0.25, 1.0))  # no rank is slow any more: the plan saves nothing now
    assert saved.seconds == 3.0
    saved.take(reduced(4, 0.25, 0.5))  # 1.9375, as long as with the plan
    dear = [replace(report, seconds=report.seconds | {"wait": 1.5}) for report in reduced(5, 0.25, 1.0)]
    saved.take(tuple(dear))  # a plan that costs more than it saves counts as such
    assert saved.seconds == 2.0
    saved.decided(plan(8, reductions=()), None)
    saved.take(reduced(6, 1.0, 1.0, decision_id=8))
    assert saved.seconds == 2.0


def test_iterations_that_do_not_compare_save_nothing_but_work_is_deleted_in_them():
    saved = saved_time()
    saved.decided(plan(7), None)
    first, second = reduced(2, 1.0, 4.0)
    saved.take((first, replace(second, measured=0)))
    saved.take((first, replace(second, decision_id=6)))
    assert saved.seconds == 0
    assert saved.deleted_iterations == 0.5


def test_work_is_deleted_in_the_iterations_under_a_plan_that_prunes():
    saved = saved_time()
    saved.take(reports(1, 1.0, 4.0))
    saved.decided(plan(7), None)
    saved.take(reports(2, 1.0, 4.0))  # still of the plan before
    saved.take(reduced(3, 1.0, 4.0))
    saved.decided(plan(8, reductions=()), None)
    saved.take(reduced(4, 1.0, 4.0))  # a late report
    saved.take(reduced(5, 4.0, 4.0, decision_id=8))
    assert saved.deleted_iterations == 0.5


def test_the_last_iteration_of_a_plan_counts_although_its_report_arrives_under_the_next_plan():
    saved = saved_time()
    saved.decided(plan(7), None)
    saved.decided(plan(8), None)
    saved.take(reduced(2, 1.0, 4.0, decision_id=7))
    assert saved.seconds == 3.0
    saved.decided(plan(9, reductions=()), None)
    saved.decided(plan(10, reductions=()), None)
    saved.take(reduced(3, 1.0, 4.0, decision_id=7))
    assert saved.seconds == 3.0


# -- units that moved -----------------------------------------------------------------------------------------


def moved(first, now):
    """Return the saved time of ranks that began with `first` and own `now`, with equal measured curves."""
    linears = LinearClass("fc", "row", (8, 8), (4, 4), 2, 1, "ffn", 1)
    costs = Costs((linears,), ((Curve((0.0, 8.0), (0.0, 1.0), 4),),) * 2, (1, 1))
    saved = SavedTime(first)
    saved.decided(WorkPlan(decision_id=7, ownership=Ownership(now)), costs.owned_by(now))
    return saved


@pytest.mark.parametrize(
    ("now", "unit", "untouched"),
    [
        # rank 1 takes 2.0 s with half of its first units: 4.0 s and twice the unit seconds with all of them
        ((12, 4), 0.5, 4.0 + 2 * 0.5 + 0.4375),
        ((12, 4), 0.0, 4.0 + 0.4375),
        ((4, 12), 0.75, 4.0 / 3 + 2 / 3 * 0.75 + 0.4375),
        ((16, 0), 0.25, 1.0 + 0.25 + 0.4375),  # without units a share cannot grow: unit seconds stay
    ],
    ids=["half", "no-unit-seconds", "more", "none"],
)
def test_unit_seconds_grow_with_the_share_that_a_rank_began_with(now, unit, untouched):
    heads = tuple(count // 4 for count in now)
    saved = moved(UnitPlan.even(2, 4, 16), UnitPlan.from_counts(heads, now))
    first, second = (replace(each, decision_id=7) for each in reports(1, now[0] / 8, 2.0 * (now[1] > 0)))
    second = replace(second, seconds=second.seconds | {"unit": unit})
    saved.take((first, second))
    assert saved.untouched((first, second), saved.work) == pytest.approx(untouched)
