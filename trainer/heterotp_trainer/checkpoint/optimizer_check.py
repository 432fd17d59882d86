"""Refuses optimizers whose state cannot be cut by units: units move from rank to rank with their state.

An update must be element-wise: what an element becomes follows from its own gradient and its own state. Then the state
has the parameter's shape, and a unit's part of it is cut like the unit.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from heterotp_trainer.errors import InputError

Named = Mapping[str, nn.Parameter]
# optimizers of torch that look at a whole tensor, by the name of their class
WHOLE_TENSOR = {
    "Adafactor": "its state row_var and col_var of a parameter are sums over rows and columns of it",
    "LBFGS": "its state is one history of the gradients of all parameters",
    "Muon": "its update makes the momentum_buffer of a whole weight orthogonal",
}
_REASON = "units move from rank to rank with their state, which must be cut like the parameter"
_INSTEAD = "use an element-wise optimizer: AdamW, Adam, SGD, RMSprop, Adagrad, NAdam, RAdam"


def refuse_whole_tensor(optimizer: torch.optim.Optimizer) -> None:
    """Raise ValueError for an optimizer of torch, or a subclass, whose update is not element-wise."""
    found = next((each.__name__ for each in type(optimizer).__mro__ if each.__name__ in WHOLE_TENSOR), None)
    if found is not None:
        raise InputError(f"optimizer {type(optimizer).__name__}: {WHOLE_TENSOR[found]}; {_REASON}: {_INSTEAD}")


def refuse_strangers(optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
    """Raise InputError naming the first parameter of the optimizer that is not in the model."""
    known = {id(parameter) for parameter in model.parameters()}
    for number, group in enumerate(optimizer.param_groups):
        for parameter in group["params"]:
            if id(parameter) not in known:
                raise InputError(
                    f"session.watch: parameter group {number} of the optimizer has a parameter of shape "
                    f"{tuple(parameter.shape)} that is not in the model, so it would not be compared, clipped or "
                    "saved: put all trained modules into one nn.Module, and watch that"
                )


def refuse_other_shapes(optimizer: torch.optim.Optimizer, parameters: Named) -> None:
    """Raise ValueError naming the first state of a parameter whose shape is not the parameter's."""
    for name, parameter, key, value in _tensor_states(optimizer, parameters):
        if value.dim() and value.shape != parameter.shape:
            shapes = f"has shape {tuple(value.shape)}, the parameter {tuple(parameter.shape)}"
            raise InputError(
                f"optimizer {type(optimizer).__name__}: its state {key} of {name} {shapes}; {_REASON}: {_INSTEAD}"
            )


def check_first_step(optimizer: torch.optim.Optimizer, parameters: Named) -> None:
    """Check the shapes of the state once, after the first step that leaves any."""

    def check(*arguments: object) -> None:
        if optimizer.state:
            hook.remove()
            refuse_other_shapes(optimizer, parameters)

    hook = optimizer.register_step_post_hook(check)


def _tensor_states(
    optimizer: torch.optim.Optimizer, parameters: Named
) -> Iterator[tuple[str, nn.Parameter, str, Tensor]]:
    for name, parameter in parameters.items():
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                yield name, parameter, key, value
