"""Queues of Volcano: their limit holds where nodes are free, and a queue that is missing is said."""

import uuid

import pytest
from support.gang_schedulers import make_queue, remove_queue
from support.seats import GPUS_OF_A_SEAT

pytestmark = pytest.mark.parametrize("provider", ["volcano"], indirect=True)


@pytest.fixture
def two_seats(kube, seats):
    """A queue for two seats of the four."""
    limit = {"nvidia.com/gpu": str(2 * int(GPUS_OF_A_SEAT)), "cpu": "64", "memory": "256Gi"}
    name = make_queue(kube, f"queue-{uuid.uuid4().hex[:8]}", capability=limit)
    yield name
    seats.clear()
    remove_queue(kube, name)


def test_a_gang_beyond_the_limit_of_its_queue_waits_until_there_is_room(seats, two_seats):
    first = seats.job("first", 2, gang={"queue": two_seats}).is_seated()
    assert first.group["spec"]["queue"] == two_seats
    second = seats.job("second", 2, gang={"queue": two_seats})
    second.waits_for("Unschedulable")
    seats.job("elsewhere", 2).is_seated()  # the nodes have room
    assert second.seated() == 0
    first.delete()
    second.is_seated()


def test_a_queue_that_is_missing_is_no_silent_wait(seats):
    lost = seats.job("lost", 1, gang={"queue": "no-such-queue"})
    lost.waits_for("Unschedulable")
    assert lost.seated() == 0
