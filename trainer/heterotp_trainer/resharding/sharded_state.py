"""The tensors that belong to the units of a rank, layer by layer: weights, biases, optimizer state, importance.

A ShardedState is one tensor that is cut by units along one dimension, with a function that replaces it at its holder.
Optimizer state of another shape than its parameter's is refused before (checkpoint/optimizer_check.py).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from heterotp_trainer.plans.unit_plan import Family
from heterotp_trainer.tensor_parallel.unit_spec import ShardSpec, shard_spec

Named = Mapping[str, nn.Parameter]
ExtraStates = Callable[[nn.Parameter], Sequence["ShardedState"]]  # further states of a parameter's units


@dataclass(frozen=True)
class ShardedState:
    """A tensor cut by units; `put` replaces it by another tensor where it is held."""

    tensor: Tensor
    spec: ShardSpec
    put: Callable[[Tensor], None]

    @property
    def unit_bytes(self) -> int:
        """Bytes of one unit, defined also where the rank owns none."""
        return _unit_bytes(self.tensor, self.spec)

    def units(self, first: int, count: int) -> Tensor:
        """Return a view of `count` of the rank's units, from its local unit number `first` on."""
        rows = self.spec.rows_per_unit
        return self.tensor.narrow(self.spec.dim, first * rows, count * rows)

    def empty(self, units: int) -> "ShardedState":
        """Return a state of the same kind with room for `units` units."""
        shape = self.spec.shape(self.tensor.shape, units)
        return ShardedState(torch.empty(shape, dtype=self.tensor.dtype, device=self.tensor.device), self.spec, self.put)


@dataclass(frozen=True)
class Layer:
    """The sharded parameters that move together: the linears of one attention or one feed-forward network.

    Embedding and logits are layers of their own, so that a move needs the memory of one at a time.
    """

    family: Family
    parameters: tuple[nn.Parameter, ...]

    @property
    def gradient_bytes(self) -> int:
        """Bytes of the gradients of one unit."""
        return sum(_unit_bytes(each, _spec(each)) for each in self.parameters)


def layers_of(parameters: Named) -> list[Layer]:
    """Return the layers in the order of their modules; one module may hold both attention and feed-forward network.

    parameters: a tied one under one name only.
    """
    layers: dict[tuple[str, Family], list[nn.Parameter]] = {}
    for name, parameter in parameters.items():
        spec = shard_spec(parameter)
        if spec is not None:
            module = name.rsplit(".", 1 if spec.family == "vocab" else 2)[0]
            layers.setdefault((module, spec.family), []).append(parameter)
    return [Layer(family, tuple(each)) for (_, family), each in layers.items()]


def states_of(
    parameters: Sequence[nn.Parameter], optimizer: torch.optim.Optimizer | None, more: ExtraStates
) -> list[ShardedState]:
    """Return all states of the units of these parameters, in the same order on every rank."""
    return [state for parameter in parameters for state in _of_parameter(parameter, optimizer, more)]


def _of_parameter(
    parameter: nn.Parameter, optimizer: torch.optim.Optimizer | None, more: ExtraStates
) -> Iterator[ShardedState]:
    spec = _spec(parameter)
    state = optimizer.state.get(parameter, {}) if optimizer is not None else {}
    for key in sorted(state):
        value = state[key]
        if isinstance(value, Tensor) and value.dim() and value.shape == parameter.shape:
            yield ShardedState(value, spec, partial(state.__setitem__, key))
    yield from more(parameter)
    yield ShardedState(
        parameter.data, spec, partial(_rebind, parameter)
    )  # last: the others are recognised by its shape


def _unit_bytes(tensor: Tensor, spec: ShardSpec) -> int:
    others = [size for dim, size in enumerate(tensor.shape) if dim != spec.dim]
    return math.prod(others) * spec.rows_per_unit * tensor.element_size()


def _spec(parameter: nn.Parameter) -> ShardSpec:
    spec = shard_spec(parameter)
    assert spec is not None
    return spec


def _rebind(parameter: nn.Parameter, tensor: Tensor) -> None:
    """Replace the tensor of a parameter, which stays the same object."""
    parameter.grad = None
    # a gradient accumulator of the last graph may still be alive; only a change of type makes torch drop its shape
    other = torch.float32 if tensor.dtype != torch.float32 else torch.float64
    parameter.data = torch.empty(0, dtype=other, device=tensor.device)
    parameter.data = tensor
