"""Whether a gang stalls, which rank the others wait for, and the sentence about it."""

import json
import time
from dataclasses import asdict

import pytest
from heterotp_api.processes import LEFT_BEHIND_SECONDS, TERM_GRACE_SECONDS
from heterotp_cli import runner
from heterotp_trainer.boundary.heartbeat import EVERY_SECONDS, REPLY_SECONDS, SOON_SECONDS
from heterotp_trainer.boundary.stall import (
    ANY,
    MOST_TEXT,
    STOP_SECONDS,
    HeartbeatsSeen,
    Place,
    Seen,
    Stall,
    hopeless,
    stall_of,
)
from heterotp_trainer.launch import launcher

NOON = 12 * 3600.0  # unix seconds: 12:00:00 UTC
SUM = "the sum of fc2"


def place(waits_for="", seconds=10.0, phase="data", reason="", beat=1, iteration=4):
    return Place(beat, iteration, phase, waits_for, reason, seconds)


def seen(waits_for="", age=0.0, **fields):
    return Seen(place(waits_for, **fields), age)


def found(*ranks, idle=12.0, median=0.1, deadline=None):
    return stall_of(ranks, idle, median, NOON, deadline)


# -- whether ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("idle", "median", "stalls"),
    [
        (4.9, 0.1, False),
        (5.0, 0.1, True),
        (9.9, 2.0, False),
        (10.0, 2.0, True),
        (29.9, None, False),
        (30.0, None, True),
    ],
    ids=["least", "from 5 s on", "slow iterations", "from 5 medians on", "first iteration", "from 30 s on"],
)
def test_a_gang_stalls_after_some_iterations_without_one(idle, median, stalls):
    assert (found(seen(), seen(), idle=idle, median=median) is not None) is stalls


@pytest.mark.parametrize(
    ("ranks", "stalls"),
    [
        ((seen(SUM, seconds=5.0), seen()), True),
        ((seen(SUM, seconds=5.0), seen("the boundary", seconds=0.1)), True),
        ((seen(SUM, seconds=5.0), seen(age=5.1)), True),
        ((seen(SUM, seconds=5.0), Seen(None, 0.0)), True),
        ((seen(SUM, seconds=4.9), seen()), False),
        ((seen(SUM), seen(SUM)), False),
        ((seen(ANY), seen()), False),
        ((seen(SUM), seen(ANY)), False),
        ((seen(), seen()), False),
    ],
    ids=["computes", "another one", "silent", "no heartbeat", "short", "same", "no name", "perhaps the same", "all"],
)
def test_before_the_first_iteration_a_rank_that_waits_for_another_shows_a_stall_at_once(ranks, stalls):
    assert (found(*ranks, idle=5.0, median=None) is not None) is stalls


def test_a_known_reason_is_no_stall():
    assert found(seen(SUM), seen(SUM, reason="a checkpoint is written")) is None


def test_a_reason_of_a_rank_that_is_silent_does_not_count():
    stall = found(seen(SUM), seen(reason="a checkpoint is written", age=5.1))
    assert stall is not None and stall.culprits == (1,)


@pytest.mark.parametrize(
    ("idle", "median", "deadline", "overdue"),
    [
        (300.0, 0.1, None, False),
        (300.1, 0.1, None, True),
        (400.0, 40.0, None, False),
        (400.1, 40.0, None, True),
        (300.1, None, None, True),
        (20.0, 0.1, 20.0, False),
        (20.1, 0.1, 20.0, True),
        (350.0, 0.1, 400.0, False),
    ],
)
def test_the_deadline_is_the_policys_or_10_medians_and_at_least_300_seconds(idle, median, deadline, overdue):
    stall = found(seen(), seen(SUM), idle=idle, median=median, deadline=deadline)
    assert stall is not None and stall.overdue is overdue


# -- who, and where -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "culprits", "where"),
    [
        (
            (seen(SUM), seen(), seen(SUM)),
            (1,),
            f"rank 1 is still computing (data, since 11:59:50 UTC), the others wait for {SUM}",
        ),
        (
            (seen(SUM), seen(seconds=61.0, age=2.0), seen(seconds=1.0, phase="matmul")),
            (1, 2),
            "rank 1 is still computing (data, since 11:58:57 UTC) and rank 2 is still computing (matmul, since "
            f"11:59:59 UTC), the others wait for {SUM}",
        ),
        (
            (seen(SUM), seen(), seen(SUM, age=6.0)),
            (2,),
            f"rank 2 has sent no heartbeat since 11:59:54 UTC, rank 0 waits for {SUM}, rank 1 waits for ",
        ),
        ((seen(SUM), Seen(None, 0.0)), (1,), f"rank 1 has sent no heartbeat, the others wait for {SUM}"),
        (
            (seen(SUM), seen("the boundary"), seen(SUM)),
            (1,),
            f"rank 1 waits for the boundary since 11:59:50 UTC, the others wait for {SUM}",
        ),
        ((seen(SUM), seen(SUM)), (), f"ranks 0 and 1 wait for {SUM}"),
        (
            tuple(seen() for _ in range(5)),
            (0, 1, 2, 3, 4),
            ", ".join(f"rank {rank} is still computing (data, since 11:59:50 UTC)" for rank in range(3))
            + " and 2 more",
        ),
    ],
    ids=[
        "one computes",
        "two compute",
        "a silent one comes first",
        "never a heartbeat",
        "another collective",
        "all in one collective",
        "many",
    ],
)
def test_the_ranks_that_the_others_wait_for_are_named(ranks, culprits, where):
    stall = found(*ranks)
    assert stall is not None and stall.culprits == culprits
    assert stall.where.startswith(where) if where.endswith("for ") else stall.where == where


def test_the_sentence_begins_with_the_time_without_an_iteration():
    assert Stall(12.4, (1,), "rank 1 is still computing", False).text == (
        "no iteration for 12 s; rank 1 is still computing"
    )


# -- heartbeats ---------------------------------------------------------------------------------------------


def test_a_place_is_read_as_it_was_written_and_texts_are_bounded():
    assert Place.from_json(place(SUM).to_json()) == place(SUM)
    long = Place.from_json(place("x" * 1000, phase="y" * 1000, reason="z" * 1000).to_json())
    assert {len(text) for text in (long.waits_for, long.phase, long.reason)} == {MOST_TEXT}


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "1", "{}", json.dumps(asdict(place()) | {"beat": "x"}), json.dumps({"beat": 1})],
)
def test_what_is_no_heartbeat_is_silence(text):
    assert HeartbeatsSeen(1).take({0: text}, 100.0) == [Seen(None, 0.0)]


def test_a_heartbeat_grows_old_until_the_next_one_arrives():
    heartbeats = HeartbeatsSeen(2)
    first = place(beat=1).to_json()
    assert [each.age for each in heartbeats.take({0: first}, 100.0)] == [0.0, 0.0]
    (same, absent) = heartbeats.take({0: first}, 104.0)
    assert (same.age, same.silent, absent.silent) == (4.0, False, True)
    assert heartbeats.take({0: first}, 105.1)[0].silent
    assert heartbeats.take({}, 106.0)[0].age == 6.0
    assert heartbeats.take({0: place(beat=2).to_json()}, 107.0)[0].age == 0.0


def came(heartbeats, now, beat, seconds, **fields):
    """Return since when rank 0 is where it is, by seconds of the reader's clock."""
    (rank,) = heartbeats.take({0: place(beat=beat, seconds=seconds, **fields).to_json()}, now)
    assert rank.place is not None
    return now - rank.age - rank.place.seconds


def test_later_beats_do_not_move_the_moment_since_when_a_rank_is_where_it_is():
    heartbeats = HeartbeatsSeen(1)
    assert came(heartbeats, 100.0, 1, 3.0) == pytest.approx(97.0)
    assert came(heartbeats, 101.8, 2, 4.0) == pytest.approx(97.0)
    assert came(heartbeats, 102.1, 3, 5.0) == pytest.approx(97.0)


@pytest.mark.parametrize("change", [{"iteration": 5}, {"phase": "fixed"}, {"waits_for": SUM}, {}])
def test_a_rank_that_has_moved_on_has_another_moment(change):
    heartbeats = HeartbeatsSeen(1)
    came(heartbeats, 100.0, 1, 3.0)
    seconds = 3.0 if change else 0.4  # without a change the same place is entered again
    assert came(heartbeats, 101.0, 2, seconds, **change) == pytest.approx(101.0 - seconds)


def test_the_clock_of_the_sentence_is_utc(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        stall = found(seen(), seen(SUM))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert stall is not None and "since 11:59:50 UTC" in stall.where


# -- the end by force ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "median", "deadline", "overdue"),
    [
        ((seen(), seen()), None, None, False),
        ((seen(), seen()), None, 300.0, True),
        ((seen(), seen(SUM)), None, None, True),
        ((seen(), seen(age=6.0)), None, None, True),
        ((seen(), seen()), 0.1, None, True),
    ],
    ids=["all prepare", "a deadline was given", "one waits", "one is silent", "an iteration has ended"],
)
def test_preparing_the_first_iteration_may_take_longer_than_the_default_deadline(ranks, median, deadline, overdue):
    stall = found(*ranks, idle=301.0, median=median, deadline=deadline)
    assert stall is not None and stall.overdue is overdue


@pytest.mark.parametrize(
    ("places", "asked", "median", "ends"),
    [
        ([place(SUM, 6.0), place()], 5.1, 0.1, True),
        ([place(SUM, 6.0), place()], 4.9, 0.1, False),
        ([place(SUM, 6.0), place()], 29.0, 10.0, False),
        ([place(SUM, 4.9), place()], 59.0, 0.1, False),
        ([place(), place()], 60.1, 0.1, True),
        ([place(SUM, 600.0), place(reason="a checkpoint")], 600.0, 0.1, False),
        ([], 60.1, None, True),
        ([place(), place()], 59.0, 0.1, False),
    ],
    ids=["stuck", "soon", "slow", "sums that end", "computing", "checkpoint", "unknown", "computing, soon"],
)
def test_a_stop_ends_by_force_what_no_iteration_will_end(places, asked, median, ends):
    assert hopeless(places, asked, median) is ends


@pytest.mark.parametrize(
    ("places", "asked", "median", "ends"),
    [
        ([place(), place()], 5.1, None, True),
        ([place(), place()], 4.9, None, False),
        ([place()], 5.1, 10.0, True),
        ([place(), place(reason="a checkpoint")], 600.0, 0.1, False),
    ],
    ids=["all compute", "soon", "slow", "checkpoint"],
)
def test_once_a_stall_is_shown_a_stop_ends_it_soon(places, asked, median, ends):
    assert hopeless(places, asked, median, stalled=True) is ends


def test_ctrl_c_ends_a_stalled_run_within_15_seconds_even_with_a_frozen_rank():
    """The signal is read, the stop is in vain, all read why, rank 0 ends, and what is left behind is killed."""
    polls = launcher.POLL_SECONDS + 2 * runner.POLL_SECONDS
    ends = EVERY_SECONDS + STOP_SECONDS + SOON_SECONDS + REPLY_SECONDS
    assert max(TERM_GRACE_SECONDS, ends + LEFT_BEHIND_SECONDS) + polls <= 15.0
