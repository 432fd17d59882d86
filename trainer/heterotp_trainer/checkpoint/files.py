"""Checkpoints on disk: one directory each, written aside, synced and renamed, so that it is whole or absent.

step-000000120/model-00001.safetensors         tensors, in files of bounded size
step-000000120/model.safetensors.index.json    the file of each tensor
step-000000120/manifest.json                   iteration, attempt, the facts of the session, and per tensor name, dtype,
                                               shape, file and SHA-256; its own digest is its last key

best/                                          the checkpoint of the lowest loss on held-out data, where it is kept

Checkpoints of earlier versions have one file tensors.bin in place of the first two; they are read. claims.py says who
may write.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from heterotp_trainer.checkpoint import tensor_files
from heterotp_trainer.checkpoint.claims import OwnedDirectory
from heterotp_trainer.checkpoint.disk import sync, write_synced
from heterotp_trainer.checkpoint.errors import CheckpointError, NotFiniteError, WriteError
from heterotp_trainer.checkpoint.manifest import Manifest
from heterotp_trainer.checkpoint.storage import Progress
from heterotp_trainer.checkpoint.tensor_files import Held

PREFIX, TORN, BEST = "step-", "torn-", "best"
MANIFEST, INDEX = "manifest.json", "model.safetensors.index.json"
REFUSED: dict[str, tensor_files.Refused] = {  # what tensors must not hold; masks and bounds hold infinities
    "model": "not finite",
    "optimizer": "not finite",
    "buffer": "NaN",
    "columns": "NaN",
    "state": "NaN",
}


class Writer:
    """Writes one checkpoint, tensor by tensor; nothing is visible before `commit`.

    An error of the disk is kept until `commit`, because peers send all their tensors in any case.
    """

    def __init__(self, owned: OwnedDirectory, iteration: int) -> None:
        self._owned, self._iteration = owned, iteration
        self._name = f"{PREFIX}{iteration:09d}"
        self._aside = owned.private / self._name
        self._error: OSError | SafetensorError | NotFiniteError | None = None
        self._tensors = tensor_files.TensorWriter(self._aside)
        with self._keeping_errors():
            shutil.rmtree(self._aside, ignore_errors=True)
            self._aside.mkdir()

    @contextmanager
    def _keeping_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, SafetensorError, NotFiniteError) as error:
            self._error = self._error or error

    def add(self, name: str, tensor: torch.Tensor) -> None:
        """Append one tensor in canonical order; it must not change before `commit`."""
        held = tensor.detach().cpu().contiguous()
        if self._error is None:
            with self._keeping_errors():
                self._tensors.add(name, held, REFUSED.get(name.partition("/")[0], "nothing"))

    def commit(self, keep: int, session: dict[str, Any] | None = None) -> Path:
        """Make the checkpoint visible and remove all but the newest `keep`; return its path.

        session: JSON-ready facts beside the tensors.

        Raises OwnerError where another attempt or job owns the directory by now, NotFiniteError where a tensor holds
        what it must not (REFUSED), WriteError when anything else went wrong; no trace of the checkpoint is left.
        """
        target = self._owned.root / self._name
        with self._keeping_errors():
            if self._error is None:
                self._publish(target, keep, session or {})
        if self._error is not None:
            self._tensors.stop()
            shutil.rmtree(self._aside, ignore_errors=True)
            self._owned.check()  # an owner that came meanwhile has removed what was written
            words = f"checkpoint of iteration {self._iteration} in {self._owned.root} cannot be written"
            if isinstance(self._error, NotFiniteError):
                raise NotFiniteError(f"{words}: {self._error}; the one before stays")
            raise WriteError(f"{words}: {getattr(self._error, 'strerror', None) or self._error}")
        return target

    def _publish(self, target: Path, keep: int, session: dict[str, Any]) -> None:
        entries = self._tensors.close()
        manifest = Manifest(self._iteration, self._owned.claim.attempt, entries, session)
        write_synced(self._aside / INDEX, manifest.index())
        write_synced(self._aside / MANIFEST, manifest.to_json())
        sync(self._aside)
        self._owned.publish(self._name, target)
        for old in paths(self._owned.root)[keep:]:
            if old != target:
                self._owned.remove(old)


def keep_best(owned: OwnedDirectory, iteration: int) -> None:
    """Make `best` a second name of the files of a checkpoint, a copy where the storage has no second names.

    Raises WriteError when it cannot be written; the one before stays where nothing was removed yet.
    """
    source, aside = owned.root / f"{PREFIX}{iteration:09d}", owned.private / BEST
    try:
        shutil.rmtree(aside, ignore_errors=True)
        shutil.copytree(source, aside, copy_function=_second_name)
        sync(aside)
        owned.publish(BEST, owned.root / BEST)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        owned.check()
        raise WriteError(f"the best checkpoint in {owned.root} cannot be kept: {error.strerror or error}") from None


def _second_name(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def set_aside(owned: OwnedDirectory, path: Path) -> Path:
    """Rename a torn checkpoint so that it counts no longer; return its new path."""
    target = path.with_name(TORN + path.name)
    owned.set_aside(path, target)
    return target


def paths(root: Path) -> list[Path]:
    """Return all checkpoints, newest first, whole or not."""
    return sorted(root.glob(f"{PREFIX}*"), reverse=True)


def verify(path: Path, progress: Progress | None = None, held: Held | None = None) -> Manifest:
    """Return the manifest of a whole checkpoint; raise CheckpointError saying what is wrong with it.

    held: keeps tensors for `read_tensors`.
    """
    progress = progress or Progress()
    try:
        manifest = Manifest.from_json((path / MANIFEST).read_text(encoding="utf-8"))
        progress.begin("checking a checkpoint", manifest.nbytes)
        tensor_files.check(path, manifest, held or Held(), progress.add)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(f"checkpoint {path} is torn or corrupt: {error}") from None
    return manifest


def newest(
    root: Path, progress: Progress | None = None, held: Held | None = None
) -> tuple[tuple[Path, Manifest] | None, list[tuple[Path, str]]]:
    """Return the newest whole checkpoint (None: there is none at all) and the newer ones with what is wrong with them.

    Raises CheckpointError when there are checkpoints but none is whole: starting anew would lose work silently.
    """
    torn: list[tuple[Path, str]] = []
    for path in paths(root):
        try:
            return (path, verify(path, progress, held)), torn
        except CheckpointError as error:
            torn.append((path, str(error)))
    if torn:
        complaints = "; ".join(complaint for _, complaint in torn)
        raise CheckpointError(f"no checkpoint is whole; remove them to start anew: {complaints}")
    return None, torn


def read_tensors(
    path: Path, manifest: Manifest, progress: Progress | None = None, held: Held | None = None
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a checkpoint one at a time, in the order they were written; held: by `verify`."""
    progress = progress or Progress()
    progress.begin("restoring", manifest.nbytes)
    try:
        for entry, tensor in tensor_files.read(path, manifest, held):
            progress.add(entry.nbytes)
            yield entry.name, tensor
    except (SafetensorError, ValueError, RuntimeError) as error:  # it was whole before
        raise CheckpointError(f"checkpoint {path} cannot be read: {error}") from None
