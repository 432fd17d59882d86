"""Tensors in safetensors files of bounded size, a few files at a time; and in the file of earlier versions.

The disk, the digests and the copies between memory and pages of files take about as long as each other. So they run
side by side, in threads: hashlib, the library and torch's copies leave the interpreter to others.
"""

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Literal

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from heterotp_trainer.checkpoint.disk import sync
from heterotp_trainer.checkpoint.errors import NotFiniteError
from heterotp_trainer.checkpoint.manifest import Entry, Manifest
from heterotp_trainer.checkpoint.storage import DTYPES

SHARD_BYTES = 128 << 20  # of tensors in one file; a larger tensor has one of its own
WRITERS = 2  # files that are written at the same time: while one is synced, the other fills pages
READERS = 3  # files that are checked at the same time: one waits for the disk, two are hashed
PIECE_BYTES = 1 << 20  # it stays in a processor's cache
MOST_HELD_BYTES = 2 << 30
FILLED = ("model/", "buffer/")  # tensors that restoring copies into memory that is there
NATIVE = frozenset(  # types of safetensors in all its versions; others are stored as their bytes
    f"torch.{name}"
    for name in (
        *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "bool"),
        *("int64", "int32", "int16", "int8", "uint8"),
    )
)


Refused = Literal["nothing", "NaN", "not finite"]  # values that a tensor must not hold


def flat_bytes(tensor: Tensor) -> Tensor:
    """Return a tensor's bytes, uint8; tensor: in the host's memory, contiguous."""
    return tensor.reshape(-1).view(torch.uint8)


def _copied(tensor: Tensor) -> Tensor:
    """Return a copy; torch itself cannot copy tensors of all types."""
    return flat_bytes(tensor).clone().view(tensor.dtype).view(tensor.shape)


def digest(tensor: Tensor) -> str:
    """Return the SHA-256 of a tensor's bytes."""
    return hashlib.sha256(flat_bytes(tensor).numpy().data).hexdigest()


def complaint(tensor: Tensor, refused: Refused) -> str:
    """Return what is wrong with the values of a tensor; empty: nothing."""
    if refused == "nothing" or not tensor.numel() or not (tensor.is_floating_point() or tensor.is_complex()):
        return ""
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    least, most = (real.float() if real.itemsize == 1 else real).aminmax()  # either is NaN where one is
    if refused == "NaN":
        return "holds NaN" if bool(torch.isnan(least)) else ""
    return "" if bool(torch.isfinite(least) & torch.isfinite(most)) else "is not finite"


class TensorWriter:
    """Writes tensors into files model-NUMBER.safetensors of a directory; threads hash, write and sync them."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._files = folder, 1
        self._hashing = ThreadPoolExecutor(1, "digests")
        self._writing = ThreadPoolExecutor(WRITERS, "files")
        self._shard: dict[str, Tensor] = {}
        self._storages: set[int] = set()  # of the shard: the library writes none twice
        self._held = 0  # bytes of the shard
        self._entries: list[Future[Entry]] = []
        self._hashed = 0  # entries that were waited for
        self._written: deque[tuple[Future[None], int]] = deque()  # files on their way, with the number of entries then

    def add(self, name: str, tensor: Tensor, refused: Refused = "nothing") -> None:
        """Add a tensor, which must not change before `close`.

        Raises what writing an earlier one has met: OSError, SafetensorError, NotFiniteError.
        """
        if self._held and self._held + tensor.nbytes > SHARD_BYTES:
            self._flush()
        stored = tensor if str(tensor.dtype) in NATIVE else flat_bytes(tensor)
        if stored.untyped_storage().data_ptr() in self._storages:
            stored = stored.clone()
        self._storages.add(stored.untyped_storage().data_ptr())
        self._shard[name] = stored
        self._held += tensor.nbytes
        self._entries.append(self._hashing.submit(_entry, name, tensor, self._file, refused))
        if self._held >= SHARD_BYTES:
            self._flush()

    def close(self) -> tuple[Entry, ...]:
        """Wait until all is on the disk; return where each tensor is. Raises as `add`."""
        if self._shard:
            self._flush()
        while self._written:
            self._wait_for_oldest()
        self.stop()
        return tuple(each.result() for each in self._entries)

    def stop(self) -> None:
        """End the threads; what they have not begun is not done."""
        for each in (self._hashing, self._writing):
            each.shutdown(cancel_futures=True)

    @property
    def _file(self) -> str:
        return f"model-{self._files:05d}.safetensors"

    def _flush(self) -> None:
        while len(self._written) >= WRITERS:
            self._wait_for_oldest()
        written = self._writing.submit(_write, self._shard, self._folder / self._file)
        self._written.append((written, len(self._entries)))
        self._shard, self._storages, self._held = {}, set(), 0
        self._files += 1

    def _wait_for_oldest(self) -> None:
        written, entries = self._written.popleft()
        written.result()
        for each in self._entries[self._hashed : entries]:
            each.result()
        self._hashed = entries


def _entry(name: str, tensor: Tensor, file: str, refused: Refused) -> Entry:
    if found := complaint(tensor, refused):
        raise NotFiniteError(f"{name} {found}")
    return Entry(name, str(tensor.dtype), tuple(tensor.shape), tensor.nbytes, digest(tensor), file)


def _write(shard: dict[str, Tensor], path: Path) -> None:
    save_file(shard, path, {"format": "pt"})
    sync(path)


class Held:
    """Tensors that stay in memory after they were checked, so that they need not be read again; by name.

    share: of the checkpoint's bytes; a rank's own share is memory that training needs in any case.
    """

    def __init__(self, share: float = 0.0) -> None:
        self._share, self._free = share, 0
        self._lock = threading.Lock()
        self._tensors: dict[str, Tensor] = {}

    def begin(self, nbytes: int) -> None:
        """Forget all; nbytes: of the checkpoint that is checked now."""
        self._free = min(int(self._share * nbytes), MOST_HELD_BYTES)
        self._tensors.clear()

    def keep(self, entry: Entry, tensor: Tensor) -> Tensor:
        """Return a copy that is kept, the tensor itself where there is no room; of any thread."""
        with self._lock:
            if entry.name.startswith(FILLED) or entry.nbytes > self._free:
                return tensor
            self._free -= entry.nbytes
        copy = self._tensors[entry.name] = _copied(tensor)
        return copy

    def taken(self, entries: list[Entry]) -> dict[str, Tensor]:
        """Return those of the entries that are kept, and forget them."""
        return {entry.name: self._tensors.pop(entry.name) for entry in entries if entry.name in self._tensors}


def check(path: Path, manifest: Manifest, held: Held, checked: Callable[[int], None]) -> None:
    """Compare all tensors with their digests; checked: called with their bytes, of any thread.

    Raises ValueError naming one that is not what the manifest says, OSError, SafetensorError.
    """
    held.begin(manifest.nbytes)
    with ThreadPoolExecutor(READERS, "digests") as pool:
        parts = [(file, list(entries)) for file, entries in groupby(manifest.entries, lambda entry: entry.file)]
        for _ in pool.map(lambda part: _check_file(path / part[0], manifest.version, part[1], held, checked), parts):
            pass


def _check_file(path: Path, version: int, entries: list[Entry], held: Held, checked: Callable[[int], None]) -> None:
    for entry, tensor in _read_single(path, entries) if version == 1 else _map(path, entries):
        if (str(tensor.dtype), tuple(tensor.shape)) != (entry.dtype, entry.shape):
            raise ValueError(f"tensor {entry.name} is of another type or shape than its manifest says")
        if digest(held.keep(entry, tensor)) != entry.sha256:
            raise ValueError(f"tensor {entry.name} does not match its checksum")
        checked(entry.nbytes)


def read(path: Path, manifest: Manifest, held: Held | None = None) -> Iterator[tuple[Entry, Tensor]]:
    """Yield the tensors of a checkpoint's directory in the order they were written, those of FILLED as parts of a file.

    held: those that need not be read. Raises OSError, SafetensorError, ValueError.
    """
    for file, group in groupby(manifest.entries, lambda entry: entry.file):
        entries = list(group)
        kept = held.taken(entries) if held is not None else {}
        missing = [entry for entry in entries if entry.name not in kept]
        found: Iterator[tuple[Entry, Tensor]] = iter(())
        if missing and manifest.version == 1:
            found = _read_single(path / file, missing)
        elif missing:
            found = _own(_map(path / file, missing))
        for entry in entries:
            yield (entry, kept.pop(entry.name)) if entry.name in kept else next(found)


def _own(mapped: Iterator[tuple[Entry, Tensor]]) -> Iterator[tuple[Entry, Tensor]]:
    for entry, tensor in mapped:
        yield entry, tensor if entry.name.startswith(FILLED) else _copied(tensor)


def _map(path: Path, entries: list[Entry]) -> Iterator[tuple[Entry, Tensor]]:
    """Yield tensors that are parts of a file, whose pages are in memory unless there is too little."""
    _read_ahead(path)
    with safe_open(path, "pt") as tensors:
        for entry in entries:
            stored = tensors.get_tensor(entry.name)
            yield entry, stored if entry.dtype in NATIVE else stored.view(DTYPES[entry.dtype]).view(entry.shape)


def _read_ahead(path: Path) -> None:
    """Read a file: faster than one page after the other, and the library reads a header while all threads wait."""
    piece = bytearray(PIECE_BYTES)
    with path.open("rb", buffering=0) as file:
        while file.readinto(piece):
            pass


def _read_single(path: Path, entries: list[Entry]) -> Iterator[tuple[Entry, Tensor]]:
    with path.open("rb") as file:
        for entry in entries:
            file.seek(entry.offset)
            raw = bytearray(entry.nbytes)
            if file.readinto(raw) != entry.nbytes:
                raise ValueError(f"{path.name} ends within tensor {entry.name}")
            flat = torch.frombuffer(raw, dtype=torch.uint8) if raw else torch.empty(0, dtype=torch.uint8)
            yield entry, flat.view(DTYPES[entry.dtype]).view(entry.shape)
