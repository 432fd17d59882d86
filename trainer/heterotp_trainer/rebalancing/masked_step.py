"""An optimizer step that leaves pruned rows or columns, and their optimizer state, unchanged."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn


def step_around(optimizer: torch.optim.Optimizer, parts: Iterable[tuple[nn.Parameter, int, Tensor]]) -> None:
    """Step the optimizer, but leave these rows or columns and their optimizer state unchanged.

    parts: parameter, dimension, indices [k]. With a zero gradient, momentum and weight decay would still change them.
    """
    kept = [(p, dim, ids, p.detach().index_select(dim, ids), _state(optimizer, p, dim, ids)) for p, dim, ids in parts]
    optimizer.step()
    for parameter, dim, ids, values, state in kept:
        parameter.data.index_copy_(dim, ids, values)
        for name, tensor in optimizer.state[parameter].items():
            if _like(tensor, parameter):
                before = state.get(name)
                tensor.index_copy_(dim, ids, torch.zeros_like(values, dtype=tensor.dtype) if before is None else before)


def _state(optimizer: torch.optim.Optimizer, parameter: nn.Parameter, dim: int, ids: Tensor) -> dict[str, Tensor]:
    state = optimizer.state.get(parameter, {})
    return {name: t.index_select(dim, ids) for name, t in state.items() if _like(t, parameter)}


def _like(value: object, parameter: nn.Parameter) -> bool:
    return isinstance(value, Tensor) and value.shape == parameter.shape
