"""Pods of a local run that goes on without those that are lost."""

from heterotp_api.names import EXIT_STOPPED
from heterotp_cli.gang import ROOT_CAUSE_GRACE_SECONDS, Watch
from heterotp_cli.runner import state_of

KILLED = 137


def test_the_others_go_on_when_a_pod_fails():
    watch = Watch(elastic=True)
    for now in (0.0, 10 * ROOT_CAUSE_GRACE_SECONDS):
        order = watch.decide([KILLED, None], now)
        assert not order.terminate and not order.kill and not order.done
    assert watch.decide([KILLED, 0], 1000.0).done


def test_a_pod_that_is_left_when_others_have_reached_the_end_is_ended():
    watch = Watch(elastic=True)
    assert not watch.decide([0, None], 0.0).terminate
    assert watch.decide([0, None], ROOT_CAUSE_GRACE_SECONDS + 1).terminate
    assert watch.decide([0, None], 10 * ROOT_CAUSE_GRACE_SECONDS).kill


def test_a_pod_that_was_lost_before_a_stop_gives_the_others_no_deadline_for_their_last_checkpoint():
    watch = Watch(elastic=True)
    watch.decide([KILLED, None, None], 0.0)
    watch.interrupts = 1
    assert watch.decide([KILLED, None, None], 1000.0).terminate
    assert not watch.decide([KILLED, None, None], 5000.0).kill
    assert not watch.decide([KILLED, EXIT_STOPPED, None], 5001.0).kill
    assert watch.decide([KILLED, EXIT_STOPPED, None], 6000.0).kill


def test_a_run_has_succeeded_where_some_ranks_reached_the_end():
    assert state_of([KILLED, 0, 0], 0, elastic=True) == "succeeded"
    assert state_of([KILLED, 0, 0], 0) == "failed"
    assert state_of([KILLED, 75, 75], 0, elastic=True) == "failed"
    assert state_of([KILLED, EXIT_STOPPED], 1, elastic=True) == "stopped"
