"""The documents of a pod's termination message: bounded, distinguished by their kind, never trusted."""

import json

import pytest
from heterotp_api.last_words import (
    MAX_BYTES,
    MAX_FAILURE_BYTES,
    rank_failure,
    trainer_status,
    with_failure,
)
from heterotp_api.trainer_status import TrainerStatus

STATUS = TrainerStatus(job="j", attempt=1, state="succeeded", started_at=1.0).model_dump_json(by_alias=True)


def failure_of(text):
    """Return the failure of a termination message that has one."""
    failure = rank_failure(text)
    assert failure is not None and len(text.encode()) <= MAX_BYTES
    return failure


def test_a_failure_is_read_back():
    failure = failure_of("a line of output\n" + with_failure("", 3, 137, ["one", "  Killed "], 5.0))
    assert (failure.kind, failure.rank, failure.exit_code, failure.message) == ("RankFailure", 3, 137, "Killed")
    assert (failure.ended_at, failure.tail) == (5.0, ("one", "  Killed "))


@pytest.mark.parametrize("letter", ["x", "\x00", "\U0001f600", '"'], ids=ascii)
def test_a_long_message_is_cut(letter):
    line = with_failure("", 0, 1, [letter * 10_000])
    failure = failure_of(line)
    assert failure.message and set(failure.message) == {letter}
    assert len(line.encode()) <= MAX_FAILURE_BYTES and failure.tail == ()


def test_the_last_lines_that_fit_are_kept():
    output = [f"line {n:04}" for n in range(1000)]
    alone, beside = failure_of(with_failure("", 0, 1, output)), failure_of(with_failure(STATUS, 0, 1, output))
    for failure in (alone, beside):
        assert failure.tail == tuple(output[-len(failure.tail) :])
    assert len(alone.tail) > len(beside.tail) > 100


def test_both_documents_stand_beside_each_other():
    text = with_failure(STATUS, 0, 1, ["why"])
    status, failure = trainer_status(text), failure_of(text)
    assert status is not None
    assert (status.state, failure.message) == ("succeeded", "why")
    assert trainer_status(with_failure("", 0, 1, ["why"])) is None and rank_failure(STATUS) is None


def test_where_both_are_too_long_the_failure_stays():
    alone = with_failure("", 0, 1, ["why"])
    assert with_failure("x" * MAX_BYTES, 0, 1, ["why"]) == alone


def test_fields_of_a_newer_trainer_are_ignored():
    body = json.loads(with_failure("", 3, 7, ["why"])) | {"newField": {"a": 1}}
    failure = failure_of(json.dumps(body))
    assert (failure.rank, failure.message) == (3, "why")


def test_the_last_document_of_a_kind_is_read():
    text = "\n".join(with_failure("", rank, 1, ["why"]) for rank in (1, 2))
    assert failure_of(text).rank == 2
    later = TrainerStatus(job="j", attempt=1, state="failed", started_at=1.0).model_dump_json(by_alias=True)
    status = trainer_status(f"{STATUS}\n{later}")
    assert status is not None and status.state == "failed"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"kind": "RankFailure"}', '{"kind": "RankFailure", "rank": -1, "exitCode": 1}', "null\n7"]
)
def test_other_text_is_no_document(text):
    assert rank_failure(text) is None and trainer_status(text) is None
