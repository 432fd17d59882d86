"""The safetensors files of a model as transformers writes and reads them, and what lies beside them."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from heterotp_trainer.errors import InputError

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
FILE_BYTES = 2 << 30  # of tensors in one written file
COPIED = ("*.json", "*.txt", "*.model", "*.jinja", "*.py")  # beside weights: tokenizer, generation settings, templates


class WeightFiles:
    """The safetensors files of a checkpoint: which file holds which tensor.

    names: file and shape by name of a tensor. types: as safetensors calls them, e.g. BF16.
    """

    def __init__(self, path: Path) -> None:
        self.folder = path if os.path.isdir(path) else path.parent
        self.names: dict[str, tuple[Path, tuple[int, ...]]] = {}
        self.types: dict[str, str] = {}
        for file in _files_of(path):
            try:
                with safe_open(file, framework="pt") as opened:
                    for name in list(opened.keys()):
                        piece = opened.get_slice(name)
                        self.names[name] = file, tuple(piece.get_shape())
                        self.types[name] = piece.get_dtype()
            except (OSError, SafetensorError) as error:
                raise InputError(f"load_pretrained: {file}: {error}") from None

    @contextmanager
    def opened(self, name: str) -> Iterator[Any]:
        """Return the file of a tensor, opened for it alone: closing it gives back the memory of the pages read."""
        with safe_open(self.names[name][0], framework="pt") as file:
            yield file


def _files_of(path: Path) -> list[Path]:
    """Return the files that a path names: itself, or those of a directory; a single file goes before an index."""
    if os.path.isfile(path):
        return [path]
    if os.path.isfile(path / SINGLE):  # as transformers does
        return [path / SINGLE]
    index = path / INDEX
    if not os.path.isfile(index):
        raise InputError(f"load_pretrained: {path}: no {SINGLE} and no {INDEX} there")
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        return [path / name for name in sorted(names)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"load_pretrained: {index}: no index with a weight_map: copy the file again") from None


class TensorFiles:
    """Whole tensors in safetensors files of bounded size, with the index of transformers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._held: dict[str, Tensor] = {}
        self._files: list[list[str]] = []
        self._bytes = 0

    def add(self, name: str, tensor: Tensor) -> None:
        """Add a tensor."""
        if self._held and sum(each.nbytes for each in self._held.values()) + tensor.nbytes > FILE_BYTES:
            self._flush()
        self._held[name] = tensor.contiguous().clone()
        self._bytes += tensor.nbytes

    def _flush(self) -> None:
        self._files.append(list(self._held))
        save_file(self._held, self._folder / f"part-{len(self._files)}", metadata={"format": "pt"})
        self._held = {}

    def close(self) -> None:
        """Write what is left, give the files their final names, and remove those of a checkpoint that was there."""
        self._flush()
        count = len(self._files)
        names = [SINGLE] if count == 1 else [f"model-{n + 1:05d}-of-{count:05d}.safetensors" for n in range(count)]
        for number, name in enumerate(names):
            (self._folder / f"part-{number + 1}").replace(self._folder / name)
        if count > 1:
            files = {tensor: name for name, held in zip(names, self._files, strict=True) for tensor in held}
            index = {"metadata": {"total_size": self._bytes}, "weight_map": files}
            (self._folder / INDEX).write_text(json.dumps(index, indent=2), encoding="utf-8")
        self._remove_others({*names, *([INDEX] if count > 1 else [])})

    def _remove_others(self, kept: set[str]) -> None:
        """Remove the index and the weights of an older checkpoint, which would be read in place of these or beside."""
        for file in self._folder.glob("model*"):
            if file.name not in kept and (file.name in (INDEX, SINGLE) or SHARD.fullmatch(file.name)):
                file.unlink()


def copy_settings(source: Path, folder: Path) -> None:
    """Copy what lies beside weights: tokenizer, templates, settings of generation."""
    for pattern in COPIED:
        for file in source.glob(pattern):
            if file.name != INDEX:
                shutil.copy(file, folder / file.name)
