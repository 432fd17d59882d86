"""The safetensors files of a model as transformers writes and reads them, and what lies beside them."""

import json
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from heterotp_trainer.errors import InputError

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
FILE_BYTES = 2 << 30  # of tensors in one written file
COPIED = ("*.json", "*.txt", "*.model", "*.jinja", "*.py")  # beside weights: tokenizer, generation settings, templates


class WeightFiles:
    """The safetensors files of a checkpoint: which file holds which tensor."""

    def __init__(self, path: Path) -> None:
        self.folder = path if path.is_dir() else path.parent
        if path.is_file():
            files = [path]
        elif (path / INDEX).is_file():
            index = json.loads((path / INDEX).read_text(encoding="utf-8"))
            files = [path / name for name in sorted(set(index["weight_map"].values()))]
        elif (path / SINGLE).is_file():
            files = [path / SINGLE]
        else:
            raise InputError(f"load_pretrained: {path}: no {SINGLE} and no {INDEX} there")
        self.names: dict[str, tuple[Path, tuple[int, ...]]] = {}
        for file in files:
            try:
                with safe_open(file, framework="pt") as opened:
                    self.names |= {
                        name: (file, tuple(opened.get_slice(name).get_shape())) for name in list(opened.keys())
                    }
            except (OSError, SafetensorError) as error:
                raise InputError(f"load_pretrained: {file}: {error}") from None

    def open(self, stack: ExitStack) -> dict[str, Any]:
        """Return by tensor name the opened file that holds it."""
        files = {file: stack.enter_context(safe_open(file, framework="pt")) for file, _ in self.names.values()}
        return {name: files[file] for name, (file, _) in self.names.items()}


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
        """Write what is left, and give the files their final names."""
        self._flush()
        count = len(self._files)
        names = [SINGLE] if count == 1 else [f"model-{n + 1:05d}-of-{count:05d}.safetensors" for n in range(count)]
        for number, name in enumerate(names):
            (self._folder / f"part-{number + 1}").replace(self._folder / name)
        if count > 1:
            files = {tensor: name for name, held in zip(names, self._files, strict=True) for tensor in held}
            index = {"metadata": {"total_size": self._bytes}, "weight_map": files}
            (self._folder / INDEX).write_text(json.dumps(index, indent=2), encoding="utf-8")


def copy_settings(source: Path, folder: Path) -> None:
    """Copy what lies beside weights: tokenizer, templates, settings of generation."""
    for pattern in COPIED:
        for file in source.glob(pattern):
            if file.name != INDEX:
                shutil.copy(file, folder / file.name)
