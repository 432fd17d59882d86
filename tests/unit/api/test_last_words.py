"""The documents of a pod's termination message: bounded, distinguished by their kind, never trusted."""

import pytest
from heterotp_api.last_words import (
    MAX_BYTES,
    MAX_FAILURE_BYTES,
    rank_failure,
    rank_failure_line,
    trainer_status,
    with_failure,
)
from heterotp_api.trainer_status import TrainerStatus

STATUS = TrainerStatus(job="j", attempt=1, state="succeeded", started_at=1.0).model_dump_json(by_alias=True)


def test_a_failure_is_read_back():
    failure = rank_failure("a line of output\n" + rank_failure_line(3, 137, "Killed"))
    assert failure is not None
    assert (failure.kind, failure.rank, failure.exit_code, failure.message) == ("RankFailure", 3, 137, "Killed")


@pytest.mark.parametrize("letter", ["x", "\x00", "\U0001f600", '"'], ids=ascii)
def test_a_long_message_is_cut(letter):
    line = rank_failure_line(0, 1, letter * 10_000)
    assert len(line.encode()) <= MAX_FAILURE_BYTES
    failure = rank_failure(line)
    assert failure is not None and failure.message and set(failure.message) == {letter}


def test_both_documents_stand_beside_each_other():
    text = with_failure(STATUS, rank_failure_line(0, 1, "why"))
    status, failure = trainer_status(text), rank_failure(text)
    assert status is not None and failure is not None
    assert (status.state, failure.message) == ("succeeded", "why")
    assert trainer_status(rank_failure_line(0, 1, "why")) is None and rank_failure(STATUS) is None


def test_where_both_are_too_long_the_failure_stays():
    line = rank_failure_line(0, 1, "why")
    assert with_failure("x" * MAX_BYTES, line) == line
    assert with_failure("", line) == line


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"kind": "RankFailure"}', '{"kind": "RankFailure", "rank": -1, "exitCode": 1}', "null\n7"]
)
def test_other_text_is_no_document(text):
    assert rank_failure(text) is None and trainer_status(text) is None
