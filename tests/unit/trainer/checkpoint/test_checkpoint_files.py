"""Checkpoint directories: whole or not there, checked, owned."""

import json
import os
import resource
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from heterotp_trainer.checkpoint import claims, files, tensor_files
from heterotp_trainer.checkpoint.claims import Claim
from heterotp_trainer.checkpoint.errors import CheckpointError, NotFiniteError, WriteError
from safetensors.torch import load_file
from support.old_checkpoint import as_version_1

TENSORS = {
    "model/a": torch.arange(12.0).view(3, 4),
    "model/half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "optimizer/a/step": torch.tensor(7.0),
    "model/empty": torch.zeros(0, 4),
}


def own(root, attempt=1, uid="mine"):
    """Take a directory as an attempt of a job does."""
    return claims.take(root, Claim.of(uid, attempt))[0]


def shown(root):
    """Return what is in a directory beside its claim."""
    return sorted(path.name for path in root.iterdir() if not path.name.startswith((".claim-", "owner.json")))


def write(root, iteration, attempt=1, keep=5):
    writer = files.Writer(own(root, attempt), iteration)
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


def test_safetensors_alone_reads_all_files_by_their_index(tmp_path, monkeypatch):
    monkeypatch.setattr(tensor_files, "SHARD_BYTES", 30)
    path = write(tmp_path, 0)
    index = json.loads((path / "model.safetensors.index.json").read_text())
    assert list(index["weight_map"]) == list(TENSORS) and len(set(index["weight_map"].values())) > 1
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in TENSORS.values())
    for file in set(index["weight_map"].values()):
        loaded = load_file(path / file)
        assert loaded.keys() == {name for name, where in index["weight_map"].items() if where == file}
        assert all(torch.equal(tensor, TENSORS[name]) for name, tensor in loaded.items())
    manifest = files.verify(path)
    assert list(dict(files.read_tensors(path, manifest))) == list(TENSORS)


def test_a_checkpoint_of_an_earlier_version_is_read(tmp_path):
    path = write(tmp_path, 0)
    as_version_1(path)
    ((found, manifest), torn) = files.newest(tmp_path)
    assert (found, torn, manifest.version) == (path, [], 1)
    back = dict(files.read_tensors(path, manifest))
    assert list(back) == list(TENSORS) and all(torch.equal(back[name], each) for name, each in TENSORS.items())


def test_tensors_that_share_memory_are_written_each(tmp_path):
    whole = torch.arange(4.0)
    writer = files.Writer(own(tmp_path), 1)
    for name, tensor in {"model/a": whole, "model/b": whole, "model/c": whole[1:3], "model/d": whole[::2]}.items():
        writer.add(name, tensor)
    path = writer.commit(1)
    back = dict(files.read_tensors(path, files.verify(path)))
    assert [tensor.tolist() for tensor in back.values()] == [[0, 1, 2, 3], [0, 1, 2, 3], [1, 2], [0, 2]]


def test_nothing_is_visible_before_the_commit(tmp_path):
    writer = files.Writer(own(tmp_path), 5)
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
    data = path / "model-00001.safetensors"
    data.write_bytes(data.read_bytes()[:-3])


def flip(path):
    data = path / "model-00001.safetensors"
    raw = bytearray(data.read_bytes())
    raw[-5] ^= 1
    data.write_bytes(raw)


def edit(path):
    manifest = path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"iteration": 20', '"iteration": 21'))


def cut(path):
    manifest = path / "manifest.json"
    manifest.write_text(manifest.read_text()[:50])


def lose(path):
    (path / "manifest.json").unlink()


def swap(path):
    """Replace the tensors by those of another checkpoint, which are whole in themselves."""
    (path.with_name("step-000000010") / "model-00001.safetensors").replace(path / "model-00001.safetensors")


def of_an_earlier_version(damage):
    def damaged(path):
        as_version_1(path)
        data = path / "tensors.bin"
        data.replace(path / "model-00001.safetensors")
        damage(path)
        (path / "model-00001.safetensors").replace(data)

    damaged.__name__ = f"{damage.__name__}, version 1"
    return damaged


DAMAGES = [tear, flip, edit, cut, lose, of_an_earlier_version(tear), of_an_earlier_version(flip)]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda f: f.__name__)
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
    assert files.set_aside(own(tmp_path), torn).name == "torn-step-000000100"
    write(tmp_path, 95, keep=1)
    assert [path.name for path in files.paths(tmp_path)] == ["step-000000095"]


def test_all_files_are_synced_before_the_commit(tmp_path, monkeypatch):
    owned, seen = own(tmp_path), []
    fsync, rename = os.fsync, Path.rename
    monkeypatch.setattr(os, "fsync", lambda fd: (seen.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name), fsync(fd)))
    monkeypatch.setattr(Path, "rename", lambda path, to: (seen.append(f"-> {Path(to).name}"), rename(path, to))[1])
    writer = files.Writer(owned, 10)
    writer.add("model/a", TENSORS["model/a"])
    writer.commit(1)
    visible = seen.index("-> step-000000010")
    assert {"model-00001.safetensors", "manifest.json", "step-000000010"} <= set(seen[:visible])
    assert tmp_path.name in seen[visible:]


@contextmanager
def small_files(nbytes):
    """Bound the files that this process writes: a write beyond it fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:  # at once: what pytest writes may go to a file, too
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_only_the_checkpoint_before(tmp_path):
    write(tmp_path, 10)
    writer = files.Writer(own(tmp_path), 20)
    for name, tensor in TENSORS.items():
        writer.add(name, tensor)
    with pytest.raises(WriteError, match=r"iteration 20 .* cannot be written: .*File too large"), small_files(300):
        writer.commit(1)
    assert shown(tmp_path) == ["step-000000010"]
    assert [path.name for path in next(tmp_path.glob(".claim-*")).iterdir()] == ["claim.json"]


def test_files_of_a_killed_writer_are_removed_by_the_next_attempt(tmp_path):
    killed = files.Writer(own(tmp_path), 10)
    killed.add("model/a", TENSORS["model/a"])
    (tmp_path / ".writing-5-1").mkdir()  # of an earlier version
    own(tmp_path, 2)
    assert shown(tmp_path) == []
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {".claim-000000002/claim.json", "owner.json"}


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.int32, torch.bool, torch.complex64, torch.complex128, torch.uint16], ids=str
)
def test_tensors_of_any_type_are_restored(tmp_path, dtype):
    writer = files.Writer(own(tmp_path), 1)
    writer.add("model/a", torch.tensor([1, 0, 1]).to(dtype))
    path = writer.commit(1)
    ((_, back),) = files.read_tensors(path, files.verify(path))
    assert back.dtype == dtype and torch.equal(back, torch.tensor([1, 0, 1]).to(dtype))


def test_only_damaged_ones_are_an_error(tmp_path):
    flip(write(tmp_path, 10))
    with pytest.raises(CheckpointError, match="no checkpoint is whole"):
        files.newest(tmp_path)


BROKEN = {
    "nan": torch.tensor([1.0, float("nan")]),
    "inf": torch.tensor([float("inf"), 1.0]),
    "half": torch.tensor([1.0, -float("inf")], dtype=torch.float16),
    "bf16": torch.tensor([float("nan")], dtype=torch.bfloat16),
    "float8": torch.tensor([float("nan")]).to(torch.float8_e5m2),
    "complex": torch.tensor([complex(0, float("nan"))]),
}


@pytest.mark.parametrize("kind", ["model/a", "optimizer/a/exp_avg"])
@pytest.mark.parametrize("tensor", BROKEN.values(), ids=BROKEN)
def test_states_that_are_not_finite_are_not_published(tmp_path, kind, tensor):
    write(tmp_path, 10)
    writer = files.Writer(own(tmp_path), 20)
    for name, each in {"model/before": torch.ones(2), kind: tensor, "model/after": torch.ones(2)}.items():
        writer.add(name, each)
    with pytest.raises(NotFiniteError, match=rf"iteration 20 .* {kind} is not finite; the one before stays"):
        writer.commit(1)
    assert shown(tmp_path) == ["step-000000010"]


@pytest.mark.parametrize("kind", ["buffer/norm.running_var", "columns/fc1/same_weight", "state/kept/mean/0/0"])
@pytest.mark.parametrize("broken", ["nan", "bf16", "float8", "complex"])
def test_nan_in_buffers_columns_and_kept_states_is_not_published(tmp_path, kind, broken):
    write(tmp_path, 10)
    writer = files.Writer(own(tmp_path), 20)
    writer.add(kind, BROKEN[broken])
    with pytest.raises(NotFiniteError, match=rf"iteration 20 .* {kind} holds NaN; the one before stays"):
        writer.commit(1)
    assert shown(tmp_path) == ["step-000000010"]


def test_masks_and_large_numbers_are_published(tmp_path):
    writer = files.Writer(own(tmp_path), 20)
    most = torch.finfo(torch.float16).max
    writer.add("model/a", torch.full((1000,), most, dtype=torch.float16))
    writer.add("model/step", torch.tensor(3))
    for name in ("buffer/mask", "columns/fc1/delta", "state/kept/best/0/0"):
        writer.add(name, torch.tensor([0.0, -float("inf"), float("inf")]))
    writer.add("buffer/empty", torch.empty(0))
    files.verify(writer.commit(1))
    assert shown(tmp_path) == ["step-000000020"]


def written_twice_over(folder, monkeypatch):
    """Return the path of a checkpoint of many files, in which every tensor has a file of its own."""
    monkeypatch.setattr(tensor_files, "SHARD_BYTES", 1)
    writer = files.Writer(own(folder), 1)
    for number in range(8):
        writer.add(f"optimizer/{number}", torch.full((4,), float(number)))
    return writer.commit(1)


def test_tensors_that_are_held_are_not_read_again(tmp_path, monkeypatch):
    path, held = written_twice_over(tmp_path, monkeypatch), tensor_files.Held(1.0)
    manifest = files.verify(path, held=held)
    for file in path.glob("*.safetensors"):
        file.unlink()
    back = list(files.read_tensors(path, manifest, None, held))
    assert [(name, tensor.tolist()) for name, tensor in back] == [(f"optimizer/{n}", [n] * 4) for n in range(8)]


def test_a_rank_holds_its_share_at_most(tmp_path, monkeypatch):
    path, held = written_twice_over(tmp_path, monkeypatch), tensor_files.Held(0.5)
    manifest = files.verify(path, held=held)
    kept = held.taken(list(manifest.entries))
    assert sum(tensor.nbytes for tensor in kept.values()) == manifest.nbytes / 2
    held.begin(manifest.nbytes)
    manifest = files.verify(path, held=held)
    assert [name for name, _ in files.read_tensors(path, manifest, None, held)] == [f"optimizer/{n}" for n in range(8)]


def test_a_late_error_of_one_of_many_files_leaves_no_trace(tmp_path, monkeypatch):
    monkeypatch.setattr(tensor_files, "SHARD_BYTES", 1)
    writer = files.Writer(own(tmp_path), 1)
    for number in range(8):
        writer.add(f"model/{number}", torch.full((4,), float("nan") if number == 7 else 0.0))
    with pytest.raises(NotFiniteError, match="model/7 is not finite"):
        writer.commit(1)
    assert shown(tmp_path) == []
    assert not any(each.name.startswith(("digests", "files")) for each in threading.enumerate())
