"""From a checkpoint of a run to a directory that transformers loads: `heterotp export`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from heterotp_trainer.checkpoint import files
from heterotp_trainer.checkpoint.errors import CheckpointError
from heterotp_trainer.checkpoint.manifest import Manifest
from heterotp_trainer.errors import InputError
from heterotp_trainer.parallelize.replace import Shards
from heterotp_trainer.parallelize.roles import Layout
from heterotp_trainer.parallelize.weight_files import TensorFiles, copy_settings
from heterotp_trainer.tensor_parallel.unit_spec import ShardSpec, shard_spec

FACTS = "model"  # the key of a checkpoint's facts


def model_facts(model: nn.Module) -> dict[str, Any]:
    """Return what a checkpoint says of a parallelized model, JSON-ready, so that it can be exported; else nothing."""
    shards = getattr(model, "_heterotp", None)
    if not isinstance(shards, Shards):
        return {}
    config: Any = getattr(model, "config", None)
    told = json.loads(config.to_json_string(use_diff=False)) if hasattr(config, "to_json_string") else None
    layouts = {
        name: {"layout": asdict(layout), "spec": asdict(spec)}
        for name, layout in shards.layouts.items()
        if layout != Layout() and (spec := shard_spec(model.get_parameter(name))) is not None
    }
    dtypes = {name: str(dtype).removeprefix("torch.") for name, dtype in shards.dtypes.items()}
    facts = {"class": type(model).__name__, "config": told, "source": shards.source}
    return {FACTS: {**facts, "layouts": layouts, "dtypes": dtypes}}


def export(run: Path, to: Path) -> int:
    """Write a checkpoint as transformers would; return its iteration.

    run: a run directory or its checkpoints, of which the newest one is taken, or one checkpoint. Raises InputError
    where there is no checkpoint, none of a parallelized model, or where `to` is not empty or cannot be written.
    """
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise InputError(f"{to}: {'it is not empty' if to.is_dir() else 'it is a file'}: name a new directory")
    try:
        path, manifest = _checkpoint(run)
        facts = manifest.session.get(FACTS)
        if facts is None:
            raise InputError(f"{path}: its model was not made by heterotp.parallelize, so that its layout is not known")
        _write(path, manifest, facts, to)
    except CheckpointError as error:
        raise InputError(str(error)) from None
    except (OSError, SafetensorError) as error:
        raise InputError(f"{to}: it cannot be written: {getattr(error, 'strerror', None) or error}") from None
    return manifest.iteration


def _checkpoint(run: Path) -> tuple[Path, Manifest]:
    """Return the checkpoint that a path names, and what it holds."""
    if (run / files.MANIFEST).is_file():
        return run, files.verify(run)
    root = run / "checkpoints" if (run / "checkpoints").is_dir() else run
    found, _ = files.newest(root)
    if found is None:
        raise InputError(f"{run}: it holds no checkpoint")
    return found


def _write(path: Path, manifest: Manifest, facts: dict[str, Any], to: Path) -> None:
    writer = TensorFiles(to)
    for name, tensor in files.read_tensors(path, manifest):
        kind, _, own = name.partition("/")
        if kind in ("model", "buffer"):
            writer.add(own, _as_made(own, tensor, facts))
    writer.close()
    _write_config(facts, to)


def _as_made(name: str, tensor: torch.Tensor, facts: dict[str, Any]) -> torch.Tensor:
    """Return a whole tensor as the plain model holds it."""
    told = facts["layouts"].get(name)
    if told is not None:
        tensor = Layout(**told["layout"]).of_model(tensor, ShardSpec(**told["spec"]))
    dtype = facts["dtypes"].get(name)
    return tensor if dtype is None else tensor.to(getattr(torch, dtype))


def _write_config(facts: dict[str, Any], to: Path) -> None:
    if facts["source"] is not None and Path(facts["source"]).is_dir():
        copy_settings(Path(facts["source"]), to)
    if facts["config"] is not None:
        config = {**facts["config"], "architectures": [facts["class"]]}
        (to / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
