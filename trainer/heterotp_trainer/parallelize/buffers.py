"""Buffers that no checkpoint holds: a model on the meta device computes them again, by its own code."""

from collections.abc import Container, Iterator
from typing import Any

import torch
from torch import nn

from heterotp_trainer.errors import InputError
from heterotp_trainer.parallelize.replace import whole_shape


def refuse_buffers_without_values(model: nn.Module, filled: Container[str]) -> None:
    """Raise InputError naming a buffer without values that neither is filled nor can be computed."""
    for name, module, keys in _without_values(model):
        lost = [key for key in keys if f"{name}{key}" not in filled]
        if lost and not hasattr(model, "_init_weights") and not hasattr(module, "reset_buffers"):
            raise InputError(
                f"{name}{lost[0]}: a buffer on the meta device has no values: compute it in forward, or give its "
                "module reset_buffers()"
            )


def compute_buffers(model: nn.Module, device: torch.device) -> None:
    """Give buffers on the meta device the values that their module's own initialization gives them."""
    own: Any = getattr(model, "_init_weights", None)
    for _, module, keys in _without_values(model):
        for key in keys:
            module._buffers[key] = torch.empty_like(module.get_buffer(key), device=device)
        if own is not None:
            with torch.no_grad():
                _without_parameters(module, own)
        else:
            module.reset_buffers()  # type: ignore[operator]


def _without_values(model: nn.Module) -> Iterator[tuple[str, nn.Module, list[str]]]:
    """Yield the modules that have buffers on the meta device, with the prefix of their names, and these buffers."""
    for name, module in model.named_modules():
        keys = [key for key, buffer in module._buffers.items() if buffer is not None and buffer.is_meta]
        if keys:
            yield f"{name}." if name else "", module, keys


def _without_parameters(module: nn.Module, initialize: Any) -> None:
    """Run a module's initialization of its buffers; its parameters, which have their values, are hidden meanwhile."""
    kept = dict(module._parameters)
    for name, parameter in kept.items():
        if parameter is not None:
            shape = whole_shape(parameter)
            module._parameters[name] = nn.Parameter(torch.empty(shape, dtype=parameter.dtype, device="meta"))
    try:
        initialize(module)
    finally:
        module._parameters.update(kept)
