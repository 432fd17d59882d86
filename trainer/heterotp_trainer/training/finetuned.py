"""A language model of transformers that is fine-tuned: from a directory of a checkpoint to another one."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from heterotp_api.training import Training
from torch import nn

from heterotp_trainer.data.tokenizer import FIELD, Tokenizer, check_vocabulary
from heterotp_trainer.errors import InputError
from heterotp_trainer.launch.environment import RankEnvironment
from heterotp_trainer.parallelize.config_model import read_config, reason
from heterotp_trainer.parallelize.model import parallelize
from heterotp_trainer.parallelize.pretrained import load_pretrained, save_pretrained
from heterotp_trainer.session import Session

EXPORTED = "exported"  # the directory that plain `from_pretrained` loads


def finetuned(session: Session, training: Training, tokenizer: Tokenizer, length: int) -> nn.Module:
    """Return a checkpoint's model with this rank's units (all ranks).

    Raises InputError where the checkpoint cannot be read, is no model of text, or does not fit tokenizer or length.
    """
    path = training.model.huggingface
    assert path is not None
    config = _config(path)
    check_vocabulary(tokenizer, config.vocab_size, f"{FIELD}: {path}")
    _check_length(config, length, path)
    for line in without_dropout(config):
        if session.environment.rank == 0:
            print(f"{path}: {line}", flush=True)
    try:
        made_by = import_module("transformers").AutoModelForCausalLM  # PyTorch 2.6 imports none on the meta device
        with torch.device("meta"):
            model: Any = made_by.from_config(config, dtype=exported_type(config))
    except Exception as error:  # of many classes, for whatever a config may hold
        raise InputError(f"{FIELD}: {path}: no language model: {reason(error)}") from None
    if training.recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    parallelize(model, session)
    load_pretrained(model, path)
    module: nn.Module = model
    return module


def export(model: nn.Module, source: str, environment: RankEnvironment) -> None:
    """Write the model into the run directory, else beside the checkpoints, as transformers reads it (all ranks).

    source: the checkpoint that it was made of, whose dropouts the written config has.
    """
    place = environment.workdir or environment.checkpoint_dir
    if place is None:
        return
    held: Any = model
    for name, value in json.loads((Path(source) / "config.json").read_text(encoding="utf-8")).items():
        if _drops(name, value):
            setattr(held.config, name, value)
    save_pretrained(model, place / EXPORTED)
    if environment.rank == 0:
        print(f"the fine-tuned model is in {place / EXPORTED}: from_pretrained loads it", flush=True)


def without_dropout(config: Any) -> list[str]:
    """Set all dropouts of a config to 0; return a line on each that was not.

    Fine-tuning needs none of them for its few epochs, and ranks would have to draw one mask for units that move.
    """
    lines = []
    for name, value in vars(config).items():
        if _drops(name, value):
            setattr(config, name, 0.0)
            lines.append(f"{name} {value:g} is set to 0: dropout is not used in fine-tuning")
    return lines


def _drops(name: str, value: object) -> bool:
    """Return whether an entry of a config is a dropout that drops something."""
    return isinstance(value, float) and value > 0 and ("dropout" in name or name.endswith("pdrop"))


def _config(path: str) -> Any:
    try:
        config = read_config(path)
    except InputError as error:
        raise InputError(f"{FIELD}: {error}") from None
    if not isinstance(getattr(config, "vocab_size", None), int):
        raise InputError(f"{FIELD}: {path}: config.json: no vocab_size: it is no model of text alone")
    return config


def exported_type(config: Any) -> torch.dtype:
    """Return the precision of the exported weights: bf16 where the config names it, else fp32, as in training.

    fp16 ends at 65504, which a trained weight may pass.
    """
    return torch.bfloat16 if getattr(config, "dtype", None) == torch.bfloat16 else torch.float32


def _check_length(config: Any, length: int, path: str) -> None:
    longest = getattr(config, "max_position_embeddings", None)
    if isinstance(longest, int) and length > longest:
        what = f"the model of {path} has {longest} positions"
        raise InputError(f"spec.training.sequenceLength: {length}: {what}: give at most so many")
