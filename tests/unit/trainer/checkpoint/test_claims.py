"""A checkpoint directory is one job's, and its newest attempt's: whoever else writes, however late, changes nothing."""

import errno
import json
import os
import shutil
import threading

import pytest
import torch
from heterotp_api.names import EXIT_BAD_INPUT
from heterotp_trainer.checkpoint import claims, files
from heterotp_trainer.checkpoint.claims import Claim, OwnedDirectory, verdict
from heterotp_trainer.checkpoint.errors import CheckpointError, OwnerError, WriteError
from heterotp_trainer.run_rank import explain


def own(root, attempt=1, uid="mine", adopt=False):
    return claims.take(root, Claim.of(uid, attempt), adopt=adopt)[0]


def write(owned, iteration, keep=2):
    writer = files.Writer(owned, iteration)
    writer.add("model/a", torch.full((2,), float(iteration)))
    return writer.commit(keep)


def steps(root):
    return [path.name for path in files.paths(root)]


VERDICTS = {
    "nobody's": (None, ("mine", 1), False, "take"),
    "the next attempt": (("mine", 1), ("mine", 2), False, "take"),
    "the same attempt once more": (("mine", 2), ("mine", 2), False, "take"),
    "an attempt before": (("mine", 3), ("mine", 2), True, "older"),
    "by hand": (("", 3), ("", 4), False, "take"),
    "by hand, before": (("", 3), ("", 2), False, "older"),
    "upgraded": (("", 3), ("mine", 4), False, "take"),
    "created again beside an earlier version's": (("", 1), ("mine", 1), False, "aside"),
    "another job": (("other", 1), ("mine", 9), False, "aside"),
    "another job, adopted": (("other", 9), ("mine", 1), True, "adopt"),
    "another job, by hand": (("other", 1), ("", 9), False, "foreign"),
}


@pytest.mark.parametrize(("held", "new", "adopt", "wanted"), VERDICTS.values(), ids=VERDICTS)
def test_who_may_write(held, new, adopt, wanted):
    assert verdict(Claim(*held) if held else None, Claim(*new), adopt) == wanted


def test_a_job_whose_checkpoints_were_adopted_does_not_take_them_back():
    assert verdict(Claim("other", 1, earlier=("mine",)), Claim("mine", 9), True) == "lost"


def test_an_older_attempt_is_refused(tmp_path):
    own(tmp_path, 3)
    last = own(tmp_path, 4)
    with pytest.raises(OwnerError, match="attempt 4 owns"):
        own(tmp_path, 3)
    last.check()
    assert json.loads((tmp_path / "owner.json").read_text())["attempt"] == 4


def test_another_job_starts_anew_in_its_own_directory_and_says_so(tmp_path):
    write(own(tmp_path, 3, "first"), 10)
    second, line = claims.take(tmp_path, Claim.of("second", 1))
    assert second.root == tmp_path / "job-second"
    assert "are of job uid first: this job starts anew in" in line and "checkpoint.adopt" in line
    for iteration in (1, 2, 3):
        write(second, iteration, keep=1)
    assert (steps(tmp_path), steps(second.root)) == (["step-000000010"], ["step-000000003"])
    again, line = claims.take(tmp_path, Claim.of("second", 2))
    assert again.root == second.root and str(second.root) in line


def test_adopted_checkpoints_are_the_new_job_s_alone(tmp_path):
    first = own(tmp_path, 3, "first")
    write(first, 10)
    second, line = claims.take(tmp_path, Claim.of("second", 1), adopt=True)
    assert "adopts the checkpoints of job uid first" in line
    with pytest.raises(OwnerError, match="job uid second owns"):
        first.check()
    with pytest.raises(OwnerError, match="job uid second has adopted the checkpoints of this job"):
        own(tmp_path, 4, "first", adopt=True)
    write(second, 11)
    assert steps(tmp_path) == ["step-000000011", "step-000000010"]


def test_a_job_without_a_uid_is_told_what_to_do_with_another_job_s(tmp_path):
    own(tmp_path, 3, "first")
    with pytest.raises(CheckpointError, match=r"are of job uid first: name another directory, set checkpoint\.adopt"):
        own(tmp_path, 4, "")


def test_a_claim_of_an_earlier_version_is_continued_by_the_next_attempt_alone(tmp_path):
    write(own(tmp_path, 2, ""), 10)
    for path in tmp_path.glob(".claim-*"):
        shutil.rmtree(path)
    (tmp_path / "owner.json").write_text('{"attempt": 2}')
    assert own(tmp_path, 1, "created-again").root != tmp_path
    assert own(tmp_path, 3).root == tmp_path
    assert own(tmp_path, 1, "created-again-2").root != tmp_path


def test_a_copy_without_hidden_files_stays_its_job_s(tmp_path):
    write(own(tmp_path / "here", 2), 10)
    shutil.copytree(tmp_path / "here", tmp_path / "there", ignore=shutil.ignore_patterns(".*"))
    assert own(tmp_path / "there", 3).root == tmp_path / "there"
    assert own(tmp_path / "there", 3, "other").root != tmp_path / "there"


def overtaken(monkeypatch, owned, by):
    """Let `by` take the directory between the check of an owner and its rename."""
    checked = []

    def check(self, _check=OwnedDirectory.check):
        _check(self)
        if self is owned and not checked:
            checked.append(by())

    monkeypatch.setattr(OwnedDirectory, "check", check)
    return checked


@pytest.mark.parametrize("uid", ["mine", "other"])
def test_a_rename_after_another_claim_publishes_nothing(tmp_path, monkeypatch, uid):
    stale = own(tmp_path, 1)
    write(stale, 10)
    winner = overtaken(monkeypatch, stale, lambda: own(tmp_path, 2, uid, adopt=True))
    with pytest.raises(OwnerError):
        write(stale, 20)
    assert steps(tmp_path) == ["step-000000010"]
    monkeypatch.undo()
    write(winner[0], 11)
    assert steps(tmp_path) == ["step-000000011", "step-000000010"]


def test_a_stale_owner_removes_nothing(tmp_path, monkeypatch):
    stale = own(tmp_path, 1)
    write(stale, 10)
    overtaken(monkeypatch, stale, lambda: write(own(tmp_path, 2), 20))
    with pytest.raises(OwnerError):
        write(stale, 20, keep=1)
    path = tmp_path / "step-000000020"
    assert files.verify(path).attempt == 2
    with pytest.raises(FileNotFoundError):
        stale.remove(path)
    with pytest.raises(FileNotFoundError):
        files.set_aside(stale, path)
    assert steps(tmp_path) == ["step-000000020", "step-000000010"]


def test_a_rename_by_a_handle_of_the_directory_publishes_nothing(tmp_path):
    """A client of a network file system renames by such handles: names that it has cached may be gone."""
    stale = own(tmp_path, 1)
    writer = files.Writer(stale, 20)
    writer.add("model/a", torch.ones(2))
    handle = os.open(stale.private, os.O_RDONLY)
    try:
        own(tmp_path, 2)
        with pytest.raises(FileNotFoundError):
            os.rename("step-000000020", tmp_path / "step-000000020", src_dir_fd=handle)
        with pytest.raises(FileNotFoundError):
            os.mkdir("step-000000030", dir_fd=handle)
    finally:
        os.close(handle)
    with pytest.raises(OwnerError):
        writer.commit(2)
    assert steps(tmp_path) == []


@pytest.mark.parametrize("uids", [["mine"] * 6, [f"job{n}" for n in range(6)]], ids=["attempts", "jobs"])
def test_of_many_that_claim_at_once_one_owns_a_directory(tmp_path, uids):
    found, start = {}, threading.Barrier(len(uids))

    def claim(number, uid):
        start.wait()
        try:
            found[number] = own(tmp_path / "shared", number + 1, uid)
        except OwnerError:
            found[number] = None

    threads = [threading.Thread(target=claim, args=each) for each in enumerate(uids)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    owners = []
    for each in filter(None, found.values()):
        try:
            each.check()
            owners.append(each)
        except OwnerError:
            pass
    assert len(owners) == len({each.root for each in owners}) == len(set(uids))
    if len(set(uids)) == 1:
        assert owners[0].claim.attempt == len(uids)


def test_what_another_claimer_may_just_rename_is_renamed_before_it_is_deleted(tmp_path, monkeypatch):
    """Deleted in its place, a claim that is being made of it would lose its file, and nobody could own the place."""
    (tmp_path / f"{claims.CLAIMING}1").mkdir()
    (tmp_path / f"{claims.CLAIMING}1" / claims.CLAIM_FILE).write_text("{}")
    deleted, rmtree = [], shutil.rmtree
    monkeypatch.setattr(claims.shutil, "rmtree", lambda path, **more: (deleted.append(path), rmtree(path, **more)))
    owned = own(tmp_path)
    assert [path.parent for path in deleted] == [owned.private]
    assert not list(tmp_path.glob(f"{claims.CLAIMING}*"))


def test_a_directory_that_was_emptied_is_owned_again(tmp_path):
    owned = own(tmp_path / "kept", 2)
    shutil.rmtree(tmp_path / "kept")
    owned.check()
    write(owned, 10)
    assert steps(tmp_path / "kept") == ["step-000000010"]


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot be written: Not a directory") as raised:
        own(tmp_path / "file" / "below")
    assert explain(raised.value)[1] == EXIT_BAD_INPUT


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT])
def test_what_may_be_over_next_time_is_no_bad_input(tmp_path, monkeypatch, number):
    def fails(path, data):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(claims, "write_synced", fails)
    with pytest.raises(WriteError, match=rf"{tmp_path} cannot be written: {os.strerror(number)}") as raised:
        own(tmp_path)
    assert explain(raised.value)[1] == 1  # the operator starts the gang again


@pytest.mark.parametrize("text", ["", '{"attempt": "x"}', "[]"])
def test_a_corrupt_claim_is_named(tmp_path, text):
    owned = own(tmp_path)
    (owned.private / "claim.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"claim\.json is corrupt"):
        own(tmp_path, 2)
