"""Refuses what a forward computes with a cut parameter outside of the layer that holds it: it sees this rank's units.

`F.linear(x, embedding.weight)` in a model's forward, for one, gives the logits of this rank's rows only.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from heterotp_trainer.errors import InputError
from heterotp_trainer.tensor_parallel.torch_functions import FACTS, name_of
from heterotp_trainer.tensor_parallel.unit_spec import shard_spec

HARMLESS = FACTS | {
    "requires_grad",
    "is_leaf",
    "grad",
    "grad_fn",
    "data_ptr",
    "itemsize",
    "nbytes",
    "__repr__",
    "__hash__",
}


class WholeUses(TorchFunctionMode):
    """Active in a forward; raises InputError for a function of a cut parameter that no running module holds.

    running: returns the modules whose forward runs now.
    """

    def __init__(self, model: nn.Module, running: Callable[[], Iterable[nn.Module]]) -> None:
        super().__init__()
        self._running = running
        self._names = {id(p): n for n, p in model.named_parameters() if shard_spec(p) is not None}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call the function, unless it computes with a cut parameter of a module that does not run."""
        kwargs = kwargs or {}
        if name_of(func) not in HARMLESS:
            for value in (*args, *kwargs.values()):
                if isinstance(value, Tensor) and id(value) in self._names and not self._held(value):
                    self._refuse(name_of(func), value)
        return func(*args, **kwargs)

    def _held(self, parameter: Tensor) -> bool:
        return any(parameter is own for module in self._running() for own in module.parameters(recurse=False))

    def _refuse(self, function: str, parameter: Tensor) -> None:
        raise InputError(
            f"model: {self._names[id(parameter)]}: {function} of a parameter that is cut, outside of its layer: a rank "
            "holds its units only: call the layer, e.g. a head with the role vocab.logits in place of F.linear"
        )
