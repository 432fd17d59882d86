"""Refuses what a forward computes with a cut parameter outside of the layer that holds it: it sees this rank's units.

`F.linear(x, embedding.weight)` in a model's forward, for one, gives the logits of this rank's rows only.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from heterotp_trainer.errors import InputError
from heterotp_trainer.tensor_parallel.torch_functions import FACTS, name_of
from heterotp_trainer.tensor_parallel.unit_spec import shard_spec

# read no value of their first tensor, or change none
_HARMLESS = (
    "requires_grad requires_grad_ is_leaf grad grad_fn data_ptr itemsize nbytes __repr__ __hash__ type is_xpu is_mps "
    "is_shared _version new_zeros new_ones new_empty new_full new_tensor"
)
HARMLESS = FACTS | frozenset(_HARMLESS.split())
LIKE_OTHERS = ("to", "type_as", "view_as", "expand_as")  # of later tensors they read type and shape alone


class WholeUses(TorchFunctionMode):
    """Active in a forward; raises InputError for a function of a cut parameter outside of the layers that hold it.

    called: the module whose forward is looked at; without one, or once its forward has ended, nothing is refused.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.called: nn.Module | None = None
        self._names = {id(p): n for n, p in model.named_parameters() if shard_spec(p) is not None}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call the function, unless it computes with a cut parameter that no running layer holds."""
        kwargs, name = kwargs or {}, name_of(func)
        if name not in HARMLESS:
            for value in _tensors(args[:1] if name in LIKE_OTHERS else (*args, *kwargs.values())):
                if id(value) in self._names and self._is_outside(value, sys._getframe(1)):
                    self._refuse(name, value)
        return func(*args, **kwargs)

    def _is_outside(self, parameter: Tensor, frame: FrameType | None) -> bool:
        """Return whether the code that runs is of the called module, but not of a layer that holds the parameter."""
        called = False
        while frame is not None:
            owner = frame.f_locals.get("self")
            if isinstance(owner, nn.Module):
                if any(parameter is own for own in owner._parameters.values()):
                    return False
                called = called or owner is self.called
            frame = frame.f_back
        return called

    def _refuse(self, function: str, parameter: Tensor) -> None:
        raise InputError(
            f"model: {self._names[id(parameter)]}: {function} of a parameter that is cut, outside of its layer: a rank "
            "holds its units only: call the layer, e.g. a head with the role vocab.logits in place of F.linear"
        )


def _tensors(values: Sequence[Any]) -> Iterator[Tensor]:
    """Yield the tensors among arguments and lists of them."""
    for value in values:
        for each in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(each, Tensor):
                yield each
