"""The journal over the attempts of a run."""

import pytest
from heterotp_api.names import JOURNAL_FILE
from heterotp_api.run_journal import DecisionRecord, RunJournal
from heterotp_cli.journal import read_journal, with_journal
from heterotp_cli.workdir import prepare


def journal(attempt, *numbers):
    fields = {"attempt": attempt, "time": "", "strategy": "AUTO", "cause": "reduced", "reason": ""}
    return RunJournal(decisions=tuple(DecisionRecord(iteration=n, decision_id=n, **fields) for n in numbers))


def write(workdir, found):
    (workdir / JOURNAL_FILE).write_text(found.model_dump_json(by_alias=True))


def decisions(workdir):
    return [(each.attempt, each.decision_id) for each in read_journal(workdir).decisions]


def test_attempts_follow_each_other(tmp_path):
    prepare(tmp_path, "demo", 1, {})
    write(tmp_path, journal(1, 1, 2))
    assert decisions(tmp_path) == [(1, 1), (1, 2)]
    prepare(tmp_path, "demo", 2, {})
    assert decisions(tmp_path) == [(1, 1), (1, 2)]  # also where rank 0 writes nothing in this attempt
    write(tmp_path, journal(2, 1))
    prepare(tmp_path, "demo", 3, {})
    write(tmp_path, journal(3, 1))
    assert decisions(tmp_path) == [(1, 1), (1, 2), (2, 1), (3, 1)]
    prepare(tmp_path, "demo", 1, {})
    assert decisions(tmp_path) == []


@pytest.mark.parametrize("text", ["", "{", '{"decisions": [1]}'])
def test_a_damaged_journal_is_left_out(tmp_path, text):
    (tmp_path / JOURNAL_FILE).write_text(text)
    assert read_journal(tmp_path) == RunJournal()


def test_the_report_of_a_killed_rank_0_gets_what_it_had_written():
    report = with_journal({"state": "failed", "decisions": []}, journal(1, 1))
    assert report["decisions"][0]["decisionId"] == 1
    assert report["leftOut"] == {"decisions": 0, "moves": 0, "injections": 0, "shares": 0}
    assert with_journal({"decisions": [1]}, RunJournal()) == {"decisions": [1]}
