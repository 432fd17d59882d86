"""The model that a directory of transformers describes, without values."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from heterotp_trainer.errors import InputError


def empty_model(path: str | Path, task: str = "AutoModelForCausalLM") -> nn.Module:
    """Return the model of a directory's config.json on the meta device, of the class that it names.

    task: the automatic class of transformers for a config that names none. Raises InputError where there is no config
    that transformers knows.
    """
    try:
        import transformers
    except ImportError:
        raise InputError(f"{path}: transformers is not installed: pip install 'heterotp[hf]'") from None
    if not (Path(path) / "config.json").is_file():
        raise InputError(f"{path}: no config.json there: name a directory that save_pretrained wrote")
    try:
        config = transformers.AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    except (ValueError, KeyError, OSError) as error:
        raise InputError(f"{path}: config.json: {str(error).splitlines()[0]}") from None
    named: list[Any] = [getattr(transformers, name, None) for name in getattr(config, "architectures", None) or ()]
    with torch.device("meta"):
        if named and hasattr(named[0], "_from_config"):
            made: nn.Module = named[0]._from_config(config)
            return made
        automatic: Any = getattr(transformers, task)
        made = automatic.from_config(config)
        return made
