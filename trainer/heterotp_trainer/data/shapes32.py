"""Loads shapes-32; drawn once and kept, because drawing takes some ten seconds."""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from heterotp_trainer.data.dataset import Dataset, normalized
from heterotp_trainer.data.shapes import CLASSES, SEED, SIDE, TEST, TRAIN, VERSION, shapes

NAME = "shapes-32"
PIXELS = 3 * SIDE * SIDE
Table = NDArray[np.uint8]  # [count, 1 + pixels]: label and pixels, as CIFAR-10's binary files


def load_shapes32(path: str | None = None, train: int | None = None, test: int | None = None) -> Dataset:
    """Return the data set, from its file in `path` or else in the user's cache; drawn where no file can be kept.

    A smaller one is the beginning of the whole one.
    """
    table = _kept(Path(path) if path is not None else _cache())
    held_out = table[TRAIN:]
    return normalized(NAME, _part(table[:TRAIN][:train]), _part(held_out[:test]), CLASSES)


def _part(table: Table) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images [n, 3, 32, 32] in 0..1 and labels [n]."""
    images = torch.tensor(table[:, 1:], dtype=torch.float32).view(-1, 3, SIDE, SIDE)
    return images.div_(255), torch.tensor(table[:, 0].astype(np.int64))


def _cache() -> Path:
    """Return the user's folder for files that can be made again."""
    given = os.environ.get("XDG_CACHE_HOME")
    return Path(given) if given else Path(os.path.expanduser("~"), ".cache")


def _kept(folder: Path) -> Table:
    """Return the table from its file; make the file where there is none, one process at a time."""
    file = folder / "heterotp" / f"{NAME}-{VERSION}.npy"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with _alone(file.with_suffix(".lock")):
            found = _read(file)
            if found is None:
                found = _drawn()
                _write(file, found)
            return found
    except OSError:  # no folder, no rights, no space: a data set without a file is as good
        return _drawn()


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold a lock, so that the ranks of a pod do not all draw the same images."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read(file: Path) -> Table | None:
    """Return the table of a file; None where there is none, or it is torn."""
    try:
        table: Table = np.load(file, mmap_mode="r", allow_pickle=False)
    except (FileNotFoundError, ValueError, EOFError):
        return None
    whole = table.dtype == np.uint8 and table.shape == (TRAIN + TEST, 1 + PIXELS)
    return table if whole else None


def _write(file: Path, table: Table) -> None:
    """Write a file that is whole or absent."""
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(descriptor, "wb") as target:
            np.save(target, table)
        os.replace(name, file)
    except BaseException:
        os.unlink(name)
        raise


def _drawn() -> Table:
    images, labels = shapes(TRAIN + TEST, SEED)
    return np.concatenate([labels[:, None], images.reshape(-1, PIXELS)], 1)
