"""What is seen of each rank 0: when it moved and answered last, by a clock that the test turns."""

import pytest
from heterotp_api.trainer_status import TrainerStatus
from heterotp_operator.progress_watch import CUT_OFF_SECONDS, HANGING_CONNECTIONS, ProgressWatch
from heterotp_operator.reconcile.observed import Progress

A, B = ("ns", "a"), ("ns", "b")


def status(iteration, attempt=1):
    return TrainerStatus(job="j", attempt=attempt, state="running", started_at=0.0, iteration=iteration)


@pytest.fixture
def clock():
    return [1000.0]


@pytest.fixture
def watch(clock):
    return ProgressWatch(lambda: clock[0])


def test_an_iteration_is_progress_and_the_same_one_is_none(watch, clock):
    assert watch.of(A, "p") is None
    watch.answered(A, "p", status(3))
    clock[0] += 10
    watch.answered(A, "p", status(3))
    clock[0] += 5
    assert watch.of(A, "p") == Progress(idle=15.0, silent=5.0)
    watch.answered(A, "p", status(4))
    assert watch.of(A, "p") == Progress(idle=0.0, silent=0.0)


def test_an_answer_that_cannot_be_used_is_no_silence_and_no_progress(watch, clock):
    watch.answered(A, "p", None)
    assert watch.of(A, "p") is None
    watch.answered(A, "p", status(3))
    clock[0] += 10
    watch.answered(A, "p", None)
    assert watch.of(A, "p") == Progress(idle=10.0, silent=0.0)


def test_another_pod_begins_anew(watch, clock):
    watch.answered(A, "p", status(3))
    clock[0] += 10
    assert watch.of(A, "q") is None
    watch.answered(A, "q", status(3, attempt=2))
    assert watch.of(A, "q") == Progress(idle=0.0, silent=0.0)
    watch.forget(A)
    assert watch.of(A, "q") is None


def silent_gangs(watch, clock, connections):
    """Two gangs answer once; then so many connections are made to each, and nothing answers for long."""
    for key in (A, B):
        watch.answered(key, "p", status(3))
    for _ in range(connections):
        clock[0] += 5
        for key in (A, B):
            watch.connected(key, "p")
    clock[0] += 10 * CUT_OFF_SECONDS
    return [watch.of(key, "p") for key in (A, B)]


def test_two_gangs_that_accept_connections_and_answer_none_hang_both(watch, clock):
    found = silent_gangs(watch, clock, HANGING_CONNECTIONS)
    assert [each.cut_off for each in found] == [False, False]
    assert found[0].silent == 10 * CUT_OFF_SECONDS + 5 * HANGING_CONNECTIONS


@pytest.mark.parametrize("connections", range(HANGING_CONNECTIONS))
def test_two_gangs_that_no_connection_reaches_may_be_healthy(watch, clock, connections):
    assert [each.cut_off for each in silent_gangs(watch, clock, connections)] == [True, True]


def test_an_answer_ends_what_connections_before_it_showed(watch, clock):
    silent_gangs(watch, clock, HANGING_CONNECTIONS)
    watch.answered(A, "p", None)
    clock[0] += 2 * CUT_OFF_SECONDS
    assert watch.of(A, "p").cut_off is True
    watch.connected(A, "another")
    watch.connected(B, "p")
    assert watch.of(A, "p").cut_off is False, "another job is within reach"
    clock[0] += 2 * CUT_OFF_SECONDS
    assert watch.of(A, "p").cut_off is True


def test_where_no_other_job_answers_the_operator_is_cut_off(watch, clock):
    watch.answered(A, "p", status(3))
    clock[0] += 10
    assert watch.of(A, "p").cut_off is False, "one job alone says nothing"
    watch.answered(B, "p", status(3))
    clock[0] += CUT_OFF_SECONDS
    assert watch.of(A, "p").cut_off is False
    clock[0] += 1
    assert watch.of(A, "p").cut_off is True
    watch.answered(B, "p", status(3))
    assert watch.of(A, "p").cut_off is False
