"""Refuses optimizers whose state cannot be cut by units: units move from rank to rank with their state.

An update must be element-wise: what an element becomes follows from its own gradient and its own state. Then the state
has the parameter's shape, and a unit's part of it is cut like the unit. The reverse does not hold: the state of LAMB
has that shape, too. So those of libraries are known by their names, and others must be chosen with care.
"""

import re
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
# of libraries, by the name of their class in small letters, without what stands before and after it in variants
OF_LIBRARIES = {
    "lamb|lars|larc|novograd": "its step follows from the norm of a whole weight or of its gradient",
    "adamp|sgdp": "it projects a whole weight's update",
    r"prodigy|dadapt\w+": "its step follows from sums over all parameters",
    r"\w*muon\w*|shampoo|soap": "its update follows from matrices of a whole weight",
}
VARIANT = r"(?:distributed|fused|pytorch|nv)*(?:{names})(?:\d+bit)?"
_REASON = "units move from rank to rank with their state, which must be cut like the parameter"
_INSTEAD = "use an element-wise optimizer: AdamW, Adam, SGD, RMSprop, Adagrad, NAdam, RAdam"


def refuse_whole_tensor(optimizer: torch.optim.Optimizer) -> None:
    """Raise ValueError for an optimizer, or a subclass, that is known not to be element-wise."""
    shown = f"optimizer {type(optimizer).__name__}"
    for name in (each.__name__ for each in type(optimizer).__mro__):
        if name in WHOLE_TENSOR:
            raise InputError(f"{shown}: {WHOLE_TENSOR[name]}; {_REASON}: {_INSTEAD}")
        for names, why in OF_LIBRARIES.items():
            if re.fullmatch(VARIANT.format(names=names), name.lower().replace("_", "")):
                raise InputError(f"{shown}: it is not element-wise: {why}, of which a rank holds a part: {_INSTEAD}")


def refuse_strangers(optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
    """Raise InputError naming the first parameter of the optimizer that is not in the model."""
    known = {id(parameter) for parameter in model.parameters()}
    for number, group in enumerate(optimizer.param_groups):
        for parameter in group["params"]:
            if id(parameter) not in known:
                raise InputError(
                    f"session.watch: parameter group {number} of the optimizer has a parameter of shape "
                    f"{tuple(parameter.shape)} that is not in the model, so it would not be compared, clipped or "
                    "saved: make the optimizer after heterotp.parallelize, which replaces parameters, and put all "
                    "trained modules into one nn.Module"
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
