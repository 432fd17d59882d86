"""The model that a directory of transformers describes, without values."""

import os
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from heterotp_trainer.errors import InputError

NAMELESS = (ArithmeticError, AttributeError, LookupError, TypeError)  # errors whose text says little without their name


def empty_model(path: str | Path, task: str = "AutoModelForCausalLM") -> nn.Module:
    """Return the model of a directory's config.json on the meta device, of the class that it names.

    task: the automatic class of transformers for a config that names none. Raises InputError where there is no config
    that transformers knows, or none of a model that can be made.
    """
    config = read_config(path)
    transformers = import_module("transformers")
    named: list[Any] = [getattr(transformers, name, None) for name in getattr(config, "architectures", None) or ()]
    own = bool(named) and hasattr(named[0], "_from_config")
    make = named[0]._from_config if own else getattr(transformers, task).from_config
    try:
        with torch.device("meta"):
            made: nn.Module = make(config)
    except Exception as error:  # of many classes, for whatever a config may hold
        raise InputError(f"{path}: config.json: no model can be made of it: {reason(error)}") from None
    return made


def read_config(path: str | Path) -> Any:
    """Return the config of a directory; code beside it is not run.

    Raises InputError where transformers is not installed, or where there is no config that it knows.
    """
    try:
        transformers = import_module("transformers")
    except ImportError:
        raise InputError(f"{path}: needs the package transformers: pip install 'heterotp[hf]'") from None
    if not os.path.isfile(Path(path) / "config.json"):
        raise InputError(f"{path}: no config.json there: name the directory of a checkpoint")
    try:
        return transformers.AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # of many classes, for whatever a config may hold
        raise InputError(f"{path}: config.json: {reason(error)}") from None


def reason(error: Exception) -> str:
    """Return the first sentence of another library's error: its lines up to the first that does not end with a colon.

    Long lists follow after it.
    """
    said = [f"{type(error).__name__}:"] if isinstance(error, NAMELESS) else []
    for line in str(error).splitlines():
        said.append(line.strip())
        if not line.rstrip().endswith(":"):
            break
    return " ".join(said) or type(error).__name__
