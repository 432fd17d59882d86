"""What a rank's work is measured by."""

import pytest
from heterotp_trainer.boundary.exchange import Report
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.reporting.null_reporter import NullReporter
from heterotp_trainer.reporting.reporter import Reporter, work_owned
from support.resharding_world import HEADS, UNITS, machine


def plan(*speeds):
    return UnitPlan.from_speeds(list(speeds), HEADS, UNITS)


@pytest.mark.parametrize("costs", [None, machine(4).costs], ids=["columns", "curves"])
@pytest.mark.parametrize(
    ("now", "first", "work"),
    [
        ((1, 1, 1, 1), (1, 1, 1, 1), 1),
        ((5, 5, 5, 1), (5, 5, 5, 1), 1),  # half as fast, half of the work: all that it should do
        ((5, 5, 5, 1), (1, 1, 1, 1), 0.25),
        ((1, 1, 1, 1), (5, 5, 5, 1), 4),
    ],
)
def test_work_is_relative_to_the_first_shares_of_the_rank(now, first, work, costs):
    assert work_owned(plan(*now), plan(*first), 3, costs) == pytest.approx(work)


def test_work_of_a_rank_without_first_units_is_relative_to_an_even_share():
    half, none = UnitPlan.even(2, HEADS, UNITS), UnitPlan((((0, HEADS),), ()), (((0, UNITS),), ()))
    assert work_owned(half, none, 1, None) == 1
    assert work_owned(none, half, 1, machine(2).costs) == 0


def test_curves_give_the_time_of_fewer_units():
    crooked = machine(4, curve=(0.5, 0.7, 0.9, 1.0)).costs  # half of the columns take seven tenths of the time
    assert work_owned(plan(1, 1, 1, 0.4), plan(1, 1, 1, 1), 3, crooked) > 0.55


class WorkOnly(Reporter):
    """A reporter of nothing but its own rank's work."""

    def __init__(self):
        self._owned, self._whole_seconds = 1.0, 0.0


def report(matmul, full_work_factor=1.0, measured=1):
    return Report(1, measured=measured, full=matmul * full_work_factor, seconds={"matmul": matmul})


def test_an_evaluation_counts_by_its_time():
    reporter = WorkOnly()
    assert reporter._work(report(0.8)) == 1
    assert reporter._work(report(0.2, full_work_factor=4)) == pytest.approx(0.25)  # pruned to a quarter
    assert reporter._work(report(0.2 + 2.4, full_work_factor=4, measured=0)) == pytest.approx(3.25)  # and an evaluation
    assert reporter._work(report(0.0, full_work_factor=1)) == 0


def test_a_reporter_shows_all_that_a_session_hands_over():
    shown = [name for name, member in vars(NullReporter).items() if callable(member) and not name.startswith("_")]
    assert [name for name in shown if name not in vars(Reporter)] == []
