"""The status document: what an operator reads of trainers of other versions."""

import json

import pytest
from heterotp_api.status import MAX_RANKS
from heterotp_api.trainer_status import (
    MAX_WORD,
    MOST_BYTES,
    MOST_CAUSES,
    MOST_INJECTIONS,
    Spread,
    TrainerInjection,
    TrainerRank,
    TrainerStatus,
    for_a_poll,
)
from pydantic import ValidationError

STATUS = {"job": "j", "attempt": 1, "state": "running", "startedAt": 1.0}


@pytest.mark.parametrize(
    ("fields", "decision_id"),
    [({}, 0), ({"decisionId": 7}, 7), ({"planId": 7}, 7), ({"planId": 6, "decisionId": 7}, 7)],
    ids=["none", "of today", "of an older trainer", "both"],
)
def test_the_number_of_a_decision_is_read_from_older_trainers(fields, decision_id):
    status = TrainerStatus.model_validate_json(json.dumps(STATUS | fields))
    assert status.decision_id == decision_id
    assert json.loads(status.model_dump_json(by_alias=True)).get("decisionId") == decision_id
    assert "planId" not in status.model_dump(by_alias=True)
    assert TrainerStatus(job="j", attempt=1, state="running", started_at=1.0, decision_id=7).decision_id == 7


def ranks(count, **of):
    """Return so many ranks; of: rank -> its fields, by the name `r` and the rank."""
    rows = [TrainerRank(rank=rank, tp_rank=rank, device="cpu", relative_speed=1.0) for rank in range(count)]
    return tuple(row.model_copy(update=of.get(f"r{row.rank}", {})) for row in rows)


def status(**fields):
    return TrainerStatus(**STATUS).model_copy(update=fields)


def read_back(found):
    text = found.model_dump_json(by_alias=True)
    assert len(text) < MOST_BYTES
    return TrainerStatus.model_validate_json(text)


def test_of_a_large_gang_stragglers_injected_and_slow_ranks_are_shown_and_the_others_summed_up():
    slow = {"relative_speed": 0.4, "compute_seconds": 2.5}
    chosen = {"r100": {"straggler": True}, "r120": {"injected_slowdown": 4.0}, "r199": slow}
    found = read_back(for_a_poll(status(ranks=ranks(200, **chosen, r150={"compute_seconds": 1.5}))))
    shown = [rank.rank for rank in found.ranks]
    assert len(shown) == MAX_RANKS and shown == sorted(shown)
    assert {100, 120, 199} <= set(shown) and 150 not in shown
    assert found.other_ranks.count == 200 - MAX_RANKS
    assert found.other_ranks.compute_seconds == Spread(least=1.5, median=1.5, most=1.5)
    assert found.other_ranks.wait_seconds is None


def test_a_small_gang_is_shown_whole():
    found = for_a_poll(status(ranks=ranks(MAX_RANKS)))
    assert (len(found.ranks), found.other_ranks) == (MAX_RANKS, None)


def test_the_largest_gang_is_shown_in_a_document_that_is_read():
    numbers = dict.fromkeys(("compute_seconds", "matmul_seconds", "wait_seconds", "slowdown", "share"), 0.1 + 0.2)
    rows = tuple(
        TrainerRank(rank=rank, tp_rank=rank, device="d" * 200, injection_problem="p" * 999, **numbers)
        for rank in range(16_384)
    )
    all_of_them = tuple(range(16_384))
    injections = tuple(TrainerInjection(uid="u" * 36, state="active") for _ in range(MOST_INJECTIONS + 9))
    injections = tuple(each.model_copy(update={"ranks": all_of_them}) for each in injections)
    text = {name: "x" * 1_000_000 for name in ("message", "stall", "reason", "control_error")}
    found = read_back(for_a_poll(status(ranks=rows, injections=injections, stalled_by=all_of_them, **text)))
    assert [len(found.ranks), len(found.injections[0].ranks)] == [MAX_RANKS] * 2
    assert len(found.injections) == MOST_INJECTIONS
    assert (len(found.message), len(found.stalled_by), found.other_ranks.count) == (1024, MAX_RANKS, 16_384 - MAX_RANKS)


LONG = "x" * 100_000


@pytest.mark.parametrize(
    ("field", "length"),
    [("message", 1024), ("stall", 1024), ("reason", 1024), ("controlError", 1024), ("job", 253), ("planHash", 128)],
)
def test_a_long_text_is_cut(field, length):
    found = TrainerStatus.model_validate_json(json.dumps(STATUS | {field: LONG})).model_dump(by_alias=True)
    assert len(found[field]) == length


@pytest.mark.parametrize(
    "fields",
    [
        {"iteration": 2**60},
        {"attempt": -1},
        {"decisionId": 10**30},
        {"stalledBy": [2**70]},
        {"ranks": [{"rank": 10**20, "tpRank": 0, "device": ""}]},
        {"ranks": [7, None, "x"] * 100},
        {"ranks": {"rank": 0}},
        {"injections": 5},
    ],
    ids=str,
)
def test_what_no_status_can_hold_is_refused(fields):
    with pytest.raises(ValidationError):
        TrainerStatus.model_validate_json(json.dumps(STATUS | fields))


@pytest.mark.parametrize(("generation", "kept"), [(-3, -3), (10**30, None), (7, 7)])
def test_the_generation_of_a_refused_document_may_be_anything(generation, kept):
    text = json.dumps(STATUS | {"controlErrorGeneration": generation})
    assert TrainerStatus.model_validate_json(text).control_error_generation == kept


def test_causes_are_read_bounded_and_an_older_trainer_has_none():
    assert TrainerStatus.model_validate(STATUS).causes == ()
    told = [{"rank": n, "kind": "x" * 1000, "share": 0.5, "newer": 1} for n in range(1000)]
    read = TrainerStatus.model_validate(STATUS | {"causes": told}).causes
    assert len(read) == MOST_CAUSES and len(read[0].kind) == MAX_WORD


@pytest.mark.parametrize(
    "fields",
    [{"share": 1.5}, {"share": -0.1}, {"share": float("nan")}, {"amount": 1e300}, {"amount": -1.0}, {"rank": -1}],
    ids=str,
)
def test_numbers_of_a_cause_that_no_status_can_hold_are_refused(fields):
    with pytest.raises(ValidationError):
        TrainerStatus.model_validate(STATUS | {"causes": [{"rank": 1, "kind": "data", "share": 0.5} | fields]})
