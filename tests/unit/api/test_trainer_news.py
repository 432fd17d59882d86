"""What is news in a status document, and the short texts by which a rank says that there are none."""

import random

import pytest
from heterotp_api.trainer_news import Place, is_news, place_of, token_of
from heterotp_api.trainer_status import MOST, TrainerCause, TrainerInjection, TrainerRank, TrainerStatus
from hypothesis import given
from hypothesis import strategies as st

ROW = {"tp_rank": 0, "device": "cpu", "slowdown": 1.0, "share": 0.5, "compute_seconds": 0.1, "wait_seconds": 0.01}
ROWS = tuple(TrainerRank(rank=rank, **ROW) for rank in range(2))
KNOWN = TrainerStatus(
    job="j",
    attempt=1,
    state="running",
    started_at=1.0,
    iteration=7,
    iteration_seconds=0.5,
    idle_seconds=0.2,
    loss=2.0,
    eta_seconds=900.0,
    ranks=ROWS,
)


def changed(**fields):
    return KNOWN.model_copy(update=fields)


def rows(**fields):
    return {"ranks": (ROWS[0], ROWS[1].model_copy(update=fields))}


@pytest.mark.parametrize(
    ("fields", "news"),
    [
        ({}, False),
        ({"iteration": 9, "epoch": 2, "loss": 1.0, "eta_seconds": 1.0, "accuracy": 0.5}, False),
        ({"iteration_seconds": 0.7}, False),
        ({"iteration_seconds": 1.0}, True),
        ({"iteration_seconds": 0.2}, True),
        ({"limit_iteration_seconds": 0.2}, True),
        ({"state": "stopping"}, True),
        ({"attempt": 2}, True),
        ({"started_at": 2.0}, True),
        ({"applied_generation": 1}, True),
        ({"control_error": "no"}, True),
        ({"control_error_generation": 3}, True),
        ({"decision_id": 1, "reason": "because"}, True),
        ({"moves": 1}, True),
        ({"lease_expired": True}, True),
        ({"message": "a checkpoint cannot be written"}, True),
        ({"stalled_seconds": 20.0, "stall": "rank 1"}, True),
        ({"idle_seconds": None}, True),
        ({"idle_seconds": 900.0}, False),
        ({"injections": (TrainerInjection(uid="u", state="active", ranks=(1,)),)}, True),
        ({"causes": (TrainerCause(rank=1, kind="cpuLimit", share=0.5),)}, True),
        (rows(compute_seconds=9.0, wait_seconds=9.0), False),
        (rows(slowdown=1.4), False),
        (rows(slowdown=2.0), True),
        (rows(measured_slowdown=2.0), False),
        (rows(straggler=True), True),
        (rows(injected_slowdown=1.1), True),
        (rows(injection_problem="no"), True),
        ({"ranks": ()}, True),
    ],
    ids=str,
)
def test_facts_and_jumps_are_news_and_noise_is_none(fields, news):
    assert is_news(KNOWN, changed(**fields)) is news


def test_how_much_a_cause_counts_is_no_news():
    more, less = (changed(causes=(TrainerCause(rank=1, kind="data", share=share),)) for share in (0.9, 0.1))
    assert not is_news(more, less)


def test_a_wording_is_no_news():
    assert not is_news(changed(message="1 %"), changed(message="2 %"))
    assert not is_news(changed(stalled_seconds=20.0), changed(stalled_seconds=900.0)), "the operator counts itself"


def test_noise_of_5_percent_is_never_news():
    noise = random.Random(0)

    def noisy(value):
        return value * noise.uniform(0.95, 1.05)

    for _ in range(200):
        ranks = tuple(each.model_copy(update={"slowdown": noisy(1.0), "share": noisy(0.5)}) for each in ROWS)
        assert not is_news(KNOWN, changed(iteration_seconds=noisy(0.5), idle_seconds=noise.random(), ranks=ranks))


@given(st.floats(), st.floats())
def test_no_number_raises(old, new):
    rank = TrainerRank(rank=0, tp_rank=0, device="", slowdown=new)
    assert is_news(KNOWN, changed(idle_seconds=old, iteration_seconds=new, ranks=(rank,))) in (True, False)


@given(st.integers(0, MOST), st.integers(0, MOST))
def test_a_place_is_read_as_it_was_written(epoch, iteration):
    assert place_of(str(Place(epoch, iteration))) == (epoch, iteration)


@pytest.mark.parametrize("text", [None, "", "1", "1.2.3", "-1.2", "1.2 ", "1.\u0663", "9" * 17 + ".1", "1." + "9" * 16])
def test_what_is_no_place_is_none(text):
    assert place_of(text) is None


@pytest.mark.parametrize(
    "text", [None, "", '""', "0" * 32, f'"{"0" * 32}"', f'W/"{"0" * 32}"\r\nX: y', f'W/"{"g" * 32}"']
)
def test_what_is_no_token_is_none(text):
    assert token_of(text) == ""
    assert token_of(f'W/"{"0a" * 16}"')
