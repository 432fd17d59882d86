"""Reads CIFAR-10 as published: the python (pickled) or the binary layout, from a directory.

A pickle can run code when it is read; the unpickler here accepts numpy arrays and plain containers only.
"""

import codecs
import io
import os
import pickle  # noqa: TID251 (restricted below)
from pathlib import Path
from typing import Any

import numpy as np
import torch

from heterotp_trainer.data.dataset import Dataset, normalized
from heterotp_trainer.errors import InputError

PIXELS = 3 * 32 * 32
RECORD = 1 + PIXELS
TRAIN = tuple(f"data_batch_{n}" for n in range(1, 6))
TEST = "test_batch"
FIELD = "spec.training.data.path"


def _allowed_globals() -> dict[tuple[str, str], Any]:
    reconstruct = np.ndarray.__reduce__(np.empty(0))[0]
    return {
        ("numpy.core.multiarray", "_reconstruct"): reconstruct,
        ("numpy._core.multiarray", "_reconstruct"): reconstruct,
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("_codecs", "encode"): codecs.encode,
    }


class _ArrayUnpickler(pickle.Unpickler):
    """Accepts arrays and plain containers; raises UnpicklingError for anything else."""

    allowed = _allowed_globals()

    def find_class(self, module_name: str, global_name: str) -> Any:
        try:
            return self.allowed[module_name, global_name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module_name}.{global_name} has no place in CIFAR-10") from None


def load_cifar10(path: str | None) -> Dataset:
    """Return CIFAR-10 from `path`; raise InputError naming the file that is missing, truncated or not CIFAR-10."""
    if path is None:
        raise InputError(f"{FIELD}: absent: cifar10 needs a directory with its files")
    root = Path(path)
    if not os.path.isdir(root):
        raise InputError(f"{FIELD}: {path}: no such directory; want the unpacked CIFAR-10 files")
    layouts = (
        (root, _python_file),
        (root / "cifar-10-batches-py", _python_file),
        (root, _binary_file),
        (root / "cifar-10-batches-bin", _binary_file),
    )
    for folder, read in layouts:
        suffix = ".bin" if read is _binary_file else ""
        if any((folder / (name + suffix)).exists() for name in (*TRAIN, TEST)):
            parts = [read(folder / (name + suffix)) for name in TRAIN]
            train = torch.cat([images for images, _ in parts]), torch.cat([labels for _, labels in parts])
            return normalized("cifar10", train, read(folder / (TEST + suffix)), 10)
    raise InputError(f"{FIELD}: {path}: holds neither data_batch_1 nor data_batch_1.bin")


def _bytes_of(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"{FIELD}: {file}: cannot be read: {error.strerror}") from error


def _python_file(file: Path) -> tuple[torch.Tensor, torch.Tensor]:
    try:
        content = _ArrayUnpickler(io.BytesIO(_bytes_of(file)), encoding="bytes").load()
        data = np.asarray(content[b"data"])
        labels = np.asarray(content[b"labels"])
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise InputError(f"{FIELD}: {file}: truncated or not a CIFAR-10 python batch: {error}") from error
    return _checked(file, data, labels)


def _binary_file(file: Path) -> tuple[torch.Tensor, torch.Tensor]:
    raw = np.frombuffer(_bytes_of(file), dtype=np.uint8)
    if raw.size == 0 or raw.size % RECORD:
        raise InputError(f"{FIELD}: {file}: {raw.size} bytes, truncated: want a multiple of {RECORD} (label + 3x32x32)")
    records = raw.reshape(-1, RECORD)
    return _checked(file, records[:, 1:], records[:, 0])


def _checked(file: Path, data: Any, labels: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images [n, 3, 32, 32] in 0..1 and labels [n]; raise InputError where they are not CIFAR-10's."""
    good_data = data.dtype == np.uint8 and data.ndim == 2 and data.shape[1] == PIXELS and len(data) > 0
    if not good_data or labels.shape != (len(data),):
        raise InputError(f"{FIELD}: {file}: data {data.shape}, labels {labels.shape}: want uint8 [n, {PIXELS}]")
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() > 9:
        raise InputError(f"{FIELD}: {file}: labels must be whole numbers 0..9")
    images = torch.tensor(data, dtype=torch.float32).view(-1, 3, 32, 32) / 255
    return images, torch.tensor(labels.astype(np.int64))
