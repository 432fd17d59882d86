"""A gang gets all of its seats or none, as the real schedulers place our pods by our PodGroups."""

from support.kube import until
from support.seats import SEATS


def test_a_gang_that_fits_is_placed_whole(seats):
    gang = seats.job("fits", SEATS).is_seated()
    gang.group_is("Running")
    assert gang.seated() == SEATS


def test_of_two_gangs_one_waits_whole_and_starts_when_the_other_ends(seats):
    both = [seats.job(name, 3) for name in ("left", "right")]
    first = until(
        "one of them runs", lambda: next((each for each in both if each.status.get("phase") == "Running"), None)
    )
    (second,) = (each for each in both if each is not first)
    second.waits_for("Unschedulable")
    assert (first.seated(), second.seated()) == (3, 0)
    first.end_all(1)
    first.phase("Succeeded")
    second.is_seated()


def test_the_seat_that_is_left_goes_to_a_gang_that_fits(seats):
    first = seats.job("three", 3).is_seated()
    large = seats.job("two", 2)
    large.waits_for("Unschedulable")
    seats.job("one", 1).is_seated()
    assert (first.seated(), large.seated()) == (3, 0)


def test_a_gang_that_is_too_large_waits_and_says_so(seats):
    large = seats.job("large", SEATS + 1)
    large.waits_for("Unschedulable")
    small = seats.job("small", SEATS).is_seated()
    assert large.seated() == 0
    assert (large.status["phase"], small.status["phase"]) == ("Starting", "Running")


def test_a_gang_that_restarts_is_placed_whole_again(seats):
    gang = seats.job("restarts", SEATS).is_seated()
    gang.group_is("Running")
    gang.end(gang.pods(1)[0], 1)
    gang.is_seated(attempt=2)
    # the coscheduling plugin's controller never changes a PodGroup again that has failed; its scheduler does not mind
    gang.group_is({"volcano": "Running", "coscheduling": "Failed"}[seats.provider])
    assert gang.seated() == SEATS


def test_a_suspended_gang_leaves_its_seats_and_gets_them_again(seats):
    gang = seats.job("paused", 3).is_seated()
    other = seats.job("other", 3)
    other.waits_for("Unschedulable")
    gang.suspend()
    other.is_seated()
    gang.patch({"runPolicy": {"suspend": False}})
    gang.waits_for("Unschedulable")
    assert gang.seated() == 0
    other.delete()
    gang.is_seated(attempt=2)
    gang.group_is("Running")


def test_a_gang_gets_its_seats_when_its_scheduler_is_back(seats, scheduler):
    running = seats.job("running", 2).is_seated()
    scheduler.kill()
    late = seats.job("late", 2)
    late.attempt(1)
    assert late.seated() == 0
    late.waits_for("Unschedulable")
    scheduler.start()
    late.is_seated()
    assert (running.seated(), running.status["attempt"]) == (2, 1)
