"""Checkpoints on disk: one directory each, written aside, synced and renamed, so that it is whole or absent.

step-000000120/tensors.bin     all tensors, one after the other, little-endian
step-000000120/manifest.json   iteration, attempt, the facts of the session, and per tensor name, dtype,
                               shape, offset and SHA-256; its own digest is its last key
owner.json                     the newest attempt that may write here
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import torch

PREFIX, ASIDE, TORN = "step-", ".writing-", "torn-"
DTYPES = {str(dtype): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be used, or a directory that cannot be written."""


class WriteError(CheckpointError):
    """A checkpoint that could not be written (a full disk); the one before stays valid."""


class OwnerError(CheckpointError):
    """A newer attempt owns the directory."""


@dataclass(frozen=True)
class Entry:
    """One tensor of a checkpoint."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The contents of a checkpoint."""

    iteration: int
    attempt: int
    entries: tuple[Entry, ...]
    session: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the manifest with its own digest."""
        entries = [vars(entry) | {"shape": list(entry.shape)} for entry in self.entries]
        body = {"schemaVersion": 1, "iteration": self.iteration, "attempt": self.attempt, "tensors": entries}
        body["session"] = self.session
        return json.dumps({**body, "sha256": _digest(body)})

    @classmethod
    def from_json(cls, text: str) -> "Manifest":
        """Return the manifest; raise ValueError or KeyError when it is torn or corrupt."""
        body = json.loads(text)
        if body.pop("sha256") != _digest(body):
            raise ValueError("its digest does not match")
        entries = tuple(Entry(**{**entry, "shape": tuple(entry["shape"])}) for entry in body["tensors"])
        return cls(body["iteration"], body["attempt"], entries, body.get("session", {}))


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _raw(tensor: torch.Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomically(path: Path, text: str) -> None:
    """Write a small file so that a reader sees the old one or the new one."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with aside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    _sync_directory(path.parent)


class Writer:
    """Writes one checkpoint, tensor by tensor; nothing is visible before `commit`.

    An error of the disk is kept until `commit`, because peers send all their tensors in any case.
    """

    def __init__(self, root: Path, iteration: int, attempt: int) -> None:
        self._root, self._iteration, self._attempt = root, iteration, attempt
        self._aside = root / f"{ASIDE}{iteration}-{attempt}"
        self._entries: list[Entry] = []
        self._error: OSError | None = None
        self._file: BinaryIO | None = None
        with self._keeping_errors():
            shutil.rmtree(self._aside, ignore_errors=True)
            self._aside.mkdir(parents=True)
            self._file = (self._aside / "tensors.bin").open("wb")

    @contextmanager
    def _keeping_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._error = self._error or error

    def add(self, name: str, tensor: torch.Tensor) -> None:
        """Append one tensor in canonical order."""
        if self._error is not None or self._file is None:
            return
        raw = _raw(tensor)
        digest = hashlib.sha256(raw).hexdigest()
        shape = tuple(tensor.shape)
        self._entries.append(Entry(name, str(tensor.dtype), shape, self._file.tell(), len(raw), digest))
        with self._keeping_errors():
            self._file.write(raw)

    def commit(self, keep: int, session: dict[str, Any] | None = None) -> Path:
        """Make the checkpoint visible and remove all but the newest `keep`; return its path.

        session: JSON-ready facts beside the tensors.

        Raises WriteError when anything went wrong; no trace of this checkpoint is left then.
        """
        target = self._root / f"{PREFIX}{self._iteration:09d}"
        with self._keeping_errors():
            if self._error is None:
                self._publish(target, keep, session or {})
        if self._error is not None:
            if self._file is not None:
                with suppress(OSError):
                    self._file.close()
            shutil.rmtree(self._aside, ignore_errors=True)
            words = f"checkpoint of iteration {self._iteration} in {self._root} cannot be written"
            raise WriteError(f"{words}: {self._error.strerror or self._error}")
        return target

    def _publish(self, target: Path, keep: int, session: dict[str, Any]) -> None:
        assert self._file is not None
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        manifest = Manifest(self._iteration, self._attempt, tuple(self._entries), session)
        write_atomically(self._aside / "manifest.json", manifest.to_json())
        if target.exists():  # the same iteration once more, after a restart
            shutil.rmtree(target)
        self._aside.rename(target)
        _sync_directory(self._root)
        for old in paths(self._root)[keep:]:
            shutil.rmtree(old)


def set_aside(path: Path) -> Path:
    """Rename a torn checkpoint so that it counts no longer; return its new path."""
    target = path.with_name(TORN + path.name)
    shutil.rmtree(target, ignore_errors=True)
    return path.rename(target)


def paths(root: Path) -> list[Path]:
    """Return all checkpoints, newest first, whole or not."""
    return sorted(root.glob(f"{PREFIX}*"), reverse=True)


def verify(path: Path) -> Manifest:
    """Return the manifest of a whole checkpoint; raise CheckpointError saying what is wrong with it."""
    try:
        manifest = Manifest.from_json((path / "manifest.json").read_text(encoding="utf-8"))
        with (path / "tensors.bin").open("rb") as file:
            for entry in manifest.entries:
                if hashlib.sha256(file.read(entry.nbytes)).hexdigest() != entry.sha256:
                    raise ValueError(f"tensor {entry.name} does not match its checksum")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"checkpoint {path} is torn or corrupt: {error}") from None
    return manifest


def newest(root: Path) -> tuple[tuple[Path, Manifest] | None, list[tuple[Path, str]]]:
    """Return the newest whole checkpoint (None: there is none at all) and the newer ones with what is wrong with them.

    Raises CheckpointError when there are checkpoints but none is whole: starting anew would lose work silently.
    """
    torn: list[tuple[Path, str]] = []
    for path in paths(root):
        try:
            return (path, verify(path)), torn
        except CheckpointError as error:
            torn.append((path, str(error)))
    if torn:
        complaints = "; ".join(complaint for _, complaint in torn)
        raise CheckpointError(f"no checkpoint is whole; remove them to start anew: {complaints}")
    return None, torn


def read_tensors(path: Path, manifest: Manifest) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a checkpoint one at a time, in the order they were written."""
    with (path / "tensors.bin").open("rb") as file:
        for entry in manifest.entries:
            raw = bytearray(file.read(entry.nbytes))
            flat = torch.frombuffer(raw, dtype=torch.uint8) if raw else torch.empty(0, dtype=torch.uint8)
            yield entry.name, flat.view(DTYPES[entry.dtype]).view(entry.shape)


def claim(root: Path, attempt: int) -> bool:
    """Make `attempt` the owner of the directory and clear away what killed writers left; return True.

    Raises OwnerError where it must not write, CheckpointError where it cannot.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        check_owner(root, attempt)
        write_atomically(root / "owner.json", json.dumps({"attempt": attempt}))
        for left in root.glob(f"{ASIDE}*"):
            shutil.rmtree(left, ignore_errors=True)
    except OSError as error:
        raise CheckpointError(f"checkpoint directory {root} cannot be written: {error.strerror}") from None
    return True


def check_owner(root: Path, attempt: int) -> None:
    """Raise OwnerError when a newer attempt owns the directory."""
    try:
        owner = int(json.loads((root / "owner.json").read_text(encoding="utf-8"))["attempt"])
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(f"{root / 'owner.json'} is corrupt; remove it when no other attempt runs") from None
    if owner > attempt:
        raise OwnerError(f"attempt {owner} owns the checkpoints in {root}; attempt {attempt} must not write")
