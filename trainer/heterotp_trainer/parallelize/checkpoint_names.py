"""Which stored tensor belongs to which parameter: names of old checkpoints, of base models, of tied weights."""

from collections.abc import Iterable
from typing import Any

from torch import nn

from heterotp_trainer.errors import InputError


def model_names(model: nn.Module, stored: Iterable[str]) -> dict[str, list[str]]:
    """Return by name of a parameter or persistent buffer the stored names of its tensor, where there are some.

    A parameter that several modules hold may be stored under each of its names. For a model of transformers old names
    are understood as `from_pretrained` does. Raises InputError for a tensor that must be computed from stored ones.
    """
    canonical = _canonical(model)
    renamed = _renaming(model)
    found: dict[str, list[str]] = {}
    for name in stored:
        own = renamed(name)
        if own in canonical:
            found.setdefault(canonical[own], []).append(name)
    return found


def _canonical(model: nn.Module) -> dict[str, str]:
    """Return by every name of a parameter or persistent buffer, tied ones too, the first name that it has."""
    tensors = model.state_dict(keep_vars=True)
    first: dict[int, str] = {}
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        first.setdefault(id(tensor), name)
    return {name: first[id(tensor)] for name, tensor in tensors.items() if id(tensor) in first}


def _renaming(model: Any) -> Any:
    """Return the function from a stored name to the model's."""
    if not hasattr(model, "config") or not hasattr(model, "base_model_prefix"):
        return lambda name: name
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter, rename_source_key

    transforms = get_model_conversion_mapping(model)
    converters: list[Any] = [each for each in transforms if isinstance(each, WeightConverter)]
    renamings: list[Any] = [each for each in transforms if not isinstance(each, WeightConverter)]
    state = model.state_dict(keep_vars=True)

    def renamed(name: str) -> str:
        new, converter = rename_source_key(name, renamings, converters, model.base_model_prefix, state)
        if converter is not None and name not in state:
            raise InputError(
                f"load_pretrained: {name}: an old form, from which weights are computed: load it with transformers and "
                "save it again"
            )
        return str(new)

    return renamed
