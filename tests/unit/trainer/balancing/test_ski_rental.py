"""The seconds lost since ranks drifted: which iterations count, and when a move pays."""

import pytest
from heterotp_trainer.balancing.detection import Drift
from heterotp_trainer.balancing.reshard_problem import counts_of
from heterotp_trainer.balancing.ski_rental import pays, with_loss_counted
from heterotp_trainer.plans.ownership import MoveCase, MoveCause, Ownership
from support.balancing_world import history_of
from support.resharding_world import machine, measured, one, problem_of

WINDOW = 4
LOSS = 0.4  # seconds of one iteration in which a rank is twice as slow: its products take 0.4 s


def case(now=1.0, then=0.5, lost=2.0, move=1.0):
    return MoveCase(MoveCause.SPEEDS, (0,), 2.0, (), 1.0, (), (), 0.0, move, lost, now, then)


@pytest.mark.parametrize(
    ("fields", "worth"),
    [
        ({}, True),
        ({"lost": 1.0}, True),
        ({"lost": 0.99}, False),
        ({"then": 0.995, "lost": 1000.0}, False),
        ({"then": 0.985}, True),
        ({"then": 1.0}, False),
    ],
    ids=["both", "as-much-as-the-move", "too-little-lost", "a-gain-of-half-a-percent", "of-1.5-percent", "no-gain"],
)
def test_a_move_pays_when_it_gains_enough_and_waiting_has_cost_as_much(fields, worth):
    assert pays(case(**fields)) == worth


def counted(ownership, ranks, observations=8):
    """Return the ownership after as many observations of rank 0 at half speed, of which the last are not counted."""
    found = machine()
    history = history_of(*[measured(found, one(2.0))] * observations, window=WINDOW)
    problem = problem_of(found, one(2.0))
    drift = Drift(problem, None, problem.even_seconds, problem.pace, ranks, 0.1)
    target = problem_of(found, one(1.0)).seconds(counts_of(found.unit_plan))
    return with_loss_counted(history, ownership, drift, target)


def test_the_count_starts_with_the_loss_of_a_window():
    found = counted(Ownership(), (0,))
    assert found.lost_seconds == pytest.approx(WINDOW * LOSS)
    assert (found.drifted, found.persistent, found.counted_at) == ((0,), (0,), 8)


def test_the_count_continues_with_the_iterations_since():
    found = counted(Ownership(persistent=(0, 3), lost_seconds=5.0, counted_at=6), (0, 1))
    assert found.lost_seconds == pytest.approx(5.0 + 2 * LOSS)
    assert (found.drifted, found.persistent) == ((0, 1), (0,))


def test_the_count_restarts_when_other_ranks_drift_instead():
    found = counted(Ownership(persistent=(3,), lost_seconds=5.0, counted_at=6), (0,))
    assert found.lost_seconds == pytest.approx(WINDOW * LOSS)
    assert found.persistent == (0,)


def test_the_count_continues_for_uneven_shares_without_a_drifted_rank():
    found = counted(Ownership(lost_seconds=5.0, counted_at=7), ())
    assert found.lost_seconds == pytest.approx(5.0 + LOSS)


@pytest.mark.parametrize(("moved_at", "iterations"), [(0, 4), (4, 4), (6, 2), (8, 0)])
def test_iterations_before_the_last_move_do_not_count(moved_at, iterations):
    assert counted(Ownership(moved_at=moved_at), (0,)).lost_seconds == pytest.approx(iterations * LOSS)
