"""The files of a run go on after what fails once."""

import json
import time

import pytest
from heterotp_api.run_journal import RunJournal
from heterotp_trainer.reporting import run_directory
from heterotp_trainer.reporting.journal import Journal
from heterotp_trainer.reporting.run_directory import RunDirectory
from support.patience import PATIENCE_SECONDS


class Statuses:
    """Gives a status with a number; the first ones fail."""

    def __init__(self, failures):
        self.failures, self.given = failures, 0

    def __call__(self):
        self.given += 1
        if self.given <= self.failures:
            raise KeyError(1)
        return json.dumps({"number": self.given})


def until(condition):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(run_directory, "STATUS_SECONDS", 0.01)


def test_the_status_goes_on_after_one_that_failed_and_the_error_is_told_once(tmp_path, often, capsys):
    directory = RunDirectory(tmp_path, Statuses(3), Journal(1, ["cpu"]))
    until((tmp_path / "status.json").exists)
    directory.close({})
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "Z the status was not written: KeyError: 1; trying again" in told


def test_the_status_goes_on_once_its_place_can_be_written_again(tmp_path, often, capsys):
    statuses, block = Statuses(0), tmp_path / ".status.json"
    block.mkdir()
    directory = RunDirectory(tmp_path, statuses, Journal(1, ["cpu"]))
    until(lambda: statuses.given > 2)
    block.rmdir()
    until((tmp_path / "status.json").exists)
    directory.close({})
    assert capsys.readouterr().err.count("IsADirectoryError") == 1


def test_a_leader_that_gives_up_leaves_its_whole_journal_and_no_report(tmp_path, monkeypatch):
    monkeypatch.setattr(run_directory, "STATUS_SECONDS", PATIENCE_SECONDS)  # nothing is written in between
    journal = Journal(1, ["cpu"])
    directory = RunDirectory(tmp_path, Statuses(0), journal)
    journal.shares(1, [1.0])
    directory.give_up()
    assert [each.iteration for each in RunJournal.read(tmp_path / "journal.json").shares] == [1]
    assert not (tmp_path / "report.json").exists()
