"""The manifest of a checkpoint: where each tensor is, its SHA-256, and the facts of the session."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any

VERSION = 2  # 1: all tensors in one file without a header, see Entry.offset
SINGLE_FILE = "tensors.bin"  # of version 1


@dataclass(frozen=True)
class Entry:
    """One tensor. file: in the checkpoint's directory. offset: bytes, in a file without a header (version 1)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    sha256: str
    file: str = SINGLE_FILE
    offset: int = 0


@dataclass(frozen=True)
class Manifest:
    """The contents of a checkpoint."""

    iteration: int
    attempt: int
    entries: tuple[Entry, ...]
    session: dict[str, Any] = field(default_factory=dict)
    version: int = VERSION

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(entry.nbytes for entry in self.entries)

    def index(self) -> str:
        """Return the index of the safetensors files: the file of each tensor."""
        files = {entry.name: entry.file for entry in self.entries}
        return json.dumps({"metadata": {"total_size": self.nbytes}, "weight_map": files}, indent=1)

    def to_json(self) -> str:
        """Return the manifest with its own digest."""
        entries = [asdict(entry) | {"shape": list(entry.shape)} for entry in self.entries]
        if self.version > 1:
            entries = [{key: value for key, value in entry.items() if key != "offset"} for entry in entries]
        body = {"schemaVersion": self.version, "iteration": self.iteration, "attempt": self.attempt, "tensors": entries}
        body["session"] = self.session
        return json.dumps({**body, "sha256": _digest(body)})

    @classmethod
    def from_json(cls, text: str) -> "Manifest":
        """Return the manifest; raise ValueError, KeyError or TypeError when it is torn or corrupt."""
        body = json.loads(text)
        if body.pop("sha256") != _digest(body):
            raise ValueError("its digest does not match")
        entries = tuple(Entry(**{**entry, "shape": tuple(entry["shape"])}) for entry in body["tensors"])
        return cls(body["iteration"], body["attempt"], entries, body.get("session", {}), body["schemaVersion"])


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
