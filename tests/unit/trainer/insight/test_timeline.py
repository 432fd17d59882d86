"""The ring of the newest iterations, and how work is divided in them."""

import numpy as np
import pytest
from heterotp_api.stages import OWN_STAGES, STAGES
from heterotp_trainer.balancing.effect import Effect
from heterotp_trainer.devices.stage_times import StageTimes
from heterotp_trainer.insight.timeline import MOST_BYTES, PLANS, Timeline
from heterotp_trainer.insight.work import work_of
from heterotp_trainer.plans.unit_plan import UnitPlan
from support.timelines import at

ONES = np.ones((2, len(STAGES)))


def times(value):
    return StageTimes((float(value),) * len(OWN_STAGES), 1.0, 2.0, 3)


def filled(numbers, room=4, decision=lambda number: 0):
    ring = Timeline(["a", "a"], room)
    for each in {decision(number) for number in numbers}:
        ring.under(each, ONES * (each + 1))
    for number in numbers:
        ring.add(number, decision(number), number / 2, [times(number), times(-number)])
    return ring


def test_the_ring_keeps_the_newest_iterations_oldest_first():
    (found,) = filled(range(1, 11)).laps(100)
    assert found.own[:, 0, 0].tolist() == [7, 8, 9, 10]
    assert found.own[:, 1, 3].tolist() == [-7, -8, -9, -10]
    assert found.span.tolist() == [3.5, 4, 4.5, 5]
    assert (found.arrived[0, 0], found.completed[0, 0], found.meetings[0, 0]) == (1, 2, 3)


def test_only_the_newest_are_returned_where_few_are_asked_for():
    (found,) = filled([1, 2, 3]).laps(2)
    assert found.own[:, 0, 0].tolist() == [2, 3]
    assert filled([]).laps(5) == []


def test_iterations_of_one_division_of_work_come_together():
    found = filled([1, 2, 3, 4], decision=lambda number: number // 3).laps(4)
    assert [each.own[:, 0, 0].tolist() for each in found] == [[1, 2], [3, 4]]
    assert [each.work[0, 0] for each in found] == [1, 2]


def test_iterations_whose_division_is_not_known_are_left_out():
    ring = Timeline(["a", "a"], 4)
    ring.add(1, 7, 1.0, [times(1), times(1)])
    assert ring.laps(1) == []


def test_divisions_that_are_long_over_are_forgotten():
    ring = filled(range(PLANS + 3), room=64, decision=lambda number: number)
    assert len(ring.laps(64)) == PLANS


@pytest.mark.parametrize("ranks", [1, 64, 1024, 16384])
def test_the_ring_has_a_bound_in_bytes_whatever_the_gang(ranks):
    ring = Timeline([""] * ranks)
    assert 1 <= ring.room <= 1000
    assert ring._kept.nbytes <= max(MOST_BYTES, 8 * ranks * (len(OWN_STAGES) + 3))


def test_work_is_what_ranks_execute_of_each_family():
    plan = UnitPlan.from_speeds([3, 1], 4, 8)
    work = work_of(plan, ())
    assert work[:, at("attentionForward")].tolist() == [1.5, 0.5]
    assert work[:, at("ffnBackward")].tolist() == [1.5, 0.5]
    assert work[:, at("data")].tolist() == [1, 1]
    assert work[:, at("embedding")].tolist() == [1, 1]  # without vocabulary rows all ranks do the same


def test_columns_that_are_pruned_or_migrated_are_no_work_of_the_rank():
    effects = [Effect(received=0.25), Effect(pruned=0.25, migrated=0.25)]
    work = work_of(UnitPlan.even(2, 4, 8), effects)
    assert work[:, at("ffnForward")].tolist() == [1.25, 0.5]
