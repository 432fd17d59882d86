"""A checkpoint as versions before 0.1.0 wrote it: one file of raw tensors, and a manifest of offsets."""

import hashlib
import json
from pathlib import Path

from heterotp_trainer.checkpoint import files, tensor_files

BEFORE_STATES = ("model", "optimizer")  # kinds of tensors that the first version held


def as_version_1(path: Path, session: dict | None = None, kinds: tuple[str, ...] = ()) -> None:
    """Rewrite a checkpoint; session: in place of its own facts; kinds: of the tensors that are kept, empty: all."""
    manifest, entries = files.verify(path), []
    with (path / "tensors.bin").open("wb") as file:
        for entry, tensor in tensor_files.read(path, manifest):
            if kinds and entry.name.split("/")[0] not in kinds:
                continue
            known = {"name": entry.name, "dtype": entry.dtype, "shape": list(entry.shape)}
            raw = tensor_files.flat_bytes(tensor).numpy().tobytes()
            where = {"offset": file.tell(), "nbytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
            entries.append(known | where)
            file.write(raw)
    for other in [each for each in path.iterdir() if each.name != "tensors.bin"]:
        other.unlink()
    body = {"schemaVersion": 1, "iteration": manifest.iteration, "attempt": manifest.attempt, "tensors": entries}
    body["session"] = manifest.session if session is None else session
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    (path / "manifest.json").write_text(json.dumps({**body, "sha256": digest}))
