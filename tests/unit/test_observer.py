"""What a rank's work is measured by."""

import pytest
from heterotp_trainer.observer import work_owned
from heterotp_trainer.tensor_parallel.units import Plan
from moving_world import HEADS, UNITS, machine

NONE = 1e-9  # too slow for a single unit


def plan(*speeds):
    return Plan.from_speeds(list(speeds), HEADS, UNITS)


@pytest.mark.parametrize("costs", [None, machine(4).costs], ids=["columns", "curves"])
@pytest.mark.parametrize(
    ("now", "first", "work"),
    [
        ((1, 1, 1, 1), (1, 1, 1, 1), 1),
        ((5, 5, 5, 1), (5, 5, 5, 1), 1),  # half as fast, half of the work: all that it should do
        ((5, 5, 5, 1), (1, 1, 1, 1), 0.25),
        ((1, 1, 1, 1), (5, 5, 5, 1), 4),
        ((1, 1, 1, NONE), (1, 1, 1, 1), 0),
        ((1, 1, 1, 1), (1, 1, 1, NONE), 1),  # began with nothing: measured by an even share
    ],
)
def test_work_is_measured_by_what_a_rank_began_with(now, first, work, costs):
    assert work_owned(plan(*now), plan(*first), 3, costs) == pytest.approx(work)


def test_curves_say_what_fewer_units_take():
    crooked = machine(4, curve=(0.5, 0.7, 0.9, 1.0)).costs  # half of the columns take seven tenths of the time
    assert work_owned(plan(1, 1, 1, 0.4), plan(1, 1, 1, 1), 3, crooked) > 0.55
