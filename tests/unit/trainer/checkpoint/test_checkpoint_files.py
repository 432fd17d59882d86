"""Checkpoint directories: whole or not there, checked, owned."""

import json
import os
from pathlib import Path

import pytest
import torch
from heterotp_trainer.checkpoint import files

TENSORS = {
    "model/a": torch.arange(12.0).view(3, 4),
    "model/half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "optimizer/a/step": torch.tensor(7.0),
    "model/empty": torch.zeros(0, 4),
}


def write(root, iteration, attempt=1, keep=5):
    writer = files.Writer(root, iteration, attempt)
    for name, tensor in TENSORS.items():
        writer.add(name, tensor + iteration if tensor.numel() else tensor)
    return writer.commit(keep)


def test_tensors_are_restored_bit_by_bit(tmp_path):
    path = write(tmp_path, 0)
    manifest = files.verify(path)
    back = dict(files.read_tensors(path, manifest))
    assert list(back) == list(TENSORS)
    for name, tensor in TENSORS.items():
        assert back[name].dtype == tensor.dtype and back[name].shape == tensor.shape
        assert torch.equal(back[name], tensor)
    assert (manifest.iteration, manifest.attempt) == (0, 1)


def test_nothing_is_visible_before_the_commit(tmp_path):
    writer = files.Writer(tmp_path, 5, 1)
    writer.add("model/a", TENSORS["model/a"])
    assert files.paths(tmp_path) == []
    assert files.newest(tmp_path) == (None, [])
    writer.commit(keep=1)
    assert len(files.paths(tmp_path)) == 1


def test_the_newest_are_kept(tmp_path):
    for iteration in (10, 20, 30):
        write(tmp_path, iteration, keep=2)
    assert [path.name for path in files.paths(tmp_path)] == ["step-000000030", "step-000000020"]


def test_the_same_iteration_may_be_written_again(tmp_path):
    write(tmp_path, 10)
    assert files.verify(write(tmp_path, 10, attempt=2)).attempt == 2


def tear(path):
    data = path / "tensors.bin"
    data.write_bytes(data.read_bytes()[:-3])


def flip(path):
    data = path / "tensors.bin"
    raw = bytearray(data.read_bytes())
    raw[5] ^= 1
    data.write_bytes(raw)


def edit(path):
    manifest = path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"iteration": 20', '"iteration": 21'))


def cut(path):
    manifest = path / "manifest.json"
    manifest.write_text(manifest.read_text()[:50])


def lose(path):
    (path / "manifest.json").unlink()


@pytest.mark.parametrize("damage", [tear, flip, edit, cut, lose], ids=lambda f: f.__name__)
def test_a_damaged_checkpoint_is_found_and_the_one_before_is_used(tmp_path, damage):
    write(tmp_path, 10)
    damage(write(tmp_path, 20))
    found, ((path, complaint),) = files.newest(tmp_path)
    assert (found[1].iteration, path.name) == (10, "step-000000020")
    assert "step-000000020 is torn or corrupt" in complaint


def test_a_checkpoint_that_was_set_aside_is_ignored(tmp_path):
    write(tmp_path, 90)
    torn = write(tmp_path, 100)
    flip(torn)
    assert files.set_aside(torn).name == "torn-step-000000100"
    write(tmp_path, 95, keep=1)
    assert [path.name for path in files.paths(tmp_path)] == ["step-000000095"]


def test_all_files_are_synced_before_the_commit(tmp_path, monkeypatch):
    seen = []
    fsync, rename = os.fsync, Path.rename
    monkeypatch.setattr(os, "fsync", lambda fd: (seen.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name), fsync(fd)))
    monkeypatch.setattr(Path, "rename", lambda path, to: (seen.append(f"-> {Path(to).name}"), rename(path, to))[1])
    write(tmp_path, 10)
    visible = seen.index("-> step-000000010")
    assert {"tensors.bin", ".writing-10-1"} <= set(seen[:visible]) and any(
        "manifest" in name for name in seen[:visible]
    )
    assert tmp_path.name in seen[visible:]


def test_a_full_disk_leaves_only_the_checkpoint_before(tmp_path):
    write(tmp_path, 10)
    writer = files.Writer(tmp_path, 20, 1)
    writer._file.close()
    writer._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115
    for name, tensor in TENSORS.items():
        writer.add(name, tensor)
    with pytest.raises(files.WriteError, match=r"checkpoint of iteration 20 .* cannot be written: No space left"):
        writer.commit(1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000010"]


def test_files_of_a_killed_writer_are_removed_by_the_next_attempt(tmp_path):
    killed = files.Writer(tmp_path, 10, 1)
    killed.add("model/a", TENSORS["model/a"])
    killed._file.close()
    assert (tmp_path / ".writing-10-1").is_dir()
    files.claim(tmp_path, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["owner.json"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.int32, torch.bool, torch.complex64], ids=str)
def test_tensors_of_any_type_are_restored(tmp_path, dtype):
    writer = files.Writer(tmp_path, 1, 1)
    writer.add("model/a", torch.tensor([1, 0, 1]).to(dtype))
    path = writer.commit(1)
    ((_, back),) = files.read_tensors(path, files.verify(path))
    assert back.dtype == dtype and torch.equal(back, torch.tensor([1, 0, 1]).to(dtype))


def test_only_damaged_ones_are_an_error(tmp_path):
    flip(write(tmp_path, 10))
    with pytest.raises(files.CheckpointError, match="no checkpoint is whole"):
        files.newest(tmp_path)


def test_an_older_attempt_is_refused(tmp_path):
    files.claim(tmp_path, 3)
    files.claim(tmp_path, 3)
    files.claim(tmp_path, 4)
    with pytest.raises(files.OwnerError, match="attempt 4 owns"):
        files.claim(tmp_path, 3)
    with pytest.raises(files.OwnerError):
        files.check_owner(tmp_path, 3)
    assert json.loads((tmp_path / "owner.json").read_text()) == {"attempt": 4}


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(files.CheckpointError, match="cannot be written"):
        files.claim(tmp_path / "file" / "below", 1)
