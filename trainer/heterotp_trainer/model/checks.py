"""What a model must not contain, because units move from rank to rank: random operations."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from heterotp_trainer.errors import InputError
from heterotp_trainer.tensor_parallel.context import TPContext

WHY = "ranks draw unlike masks, and units change rank: leave it out, or p=0"


def refuse_dropout(model: nn.Module, tp: TPContext) -> None:
    """Raise InputError naming the first module that drops activations in training."""
    for name, module in model.named_modules():
        if (p := _dropped(module)) and tp.ranks > 1:
            raise InputError(f"model: {name}: {type(module).__name__}(p={p}): {WHY}")


def _dropped(module: nn.Module) -> float:
    """Return the share of activations that a module drops."""
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return module.p
    return float(module.dropout) if isinstance(module, nn.MultiheadAttention) else 0.0


class DrawCheck:
    """Raises InputError after a forward in training that drew from torch's generator, as F.dropout does.

    In the first iteration all modules are watched, and the innermost that draws is named; later only the model and
    those that the loop itself called.
    """

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self._device = device
        # states of the generators when a module was entered; a recomputation may end inside of one and never leave it
        self._entered: dict[nn.Module, list[Tensor]] = {}
        self._outermost: set[nn.Module] = {model}
        self._hooked = {
            module: self._hooks(f"{name}: " if name else "", module) for name, module in model.named_modules()
        }

    def _hooks(self, name: str, module: nn.Module) -> list[RemovableHandle]:
        def enter(module: nn.Module, arguments: Any) -> None:
            if module.training:
                if not self._entered:
                    self._outermost.add(module)
                self._entered[module] = self._states()

        def leave(module: nn.Module, arguments: Any, output: Any) -> None:
            if not module.training:
                return
            before, now = self._entered.pop(module), self._states()
            if not all(torch.equal(one, other) for one, other in zip(before, now, strict=True)):
                what = f"{type(module).__name__} draws random numbers in training (a dropout?)"
                raise InputError(f"model: {name}{what}: {WHY}")

        return [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]

    def _states(self) -> list[Tensor]:
        cuda = [torch.cuda.get_rng_state(self._device)] if self._device.type == "cuda" else []
        return [torch.get_rng_state(), *cuda]

    def forget_parts(self) -> None:
        """Watch only what the loop itself calls from now on: reading the generators costs time."""
        for module in self._hooked.keys() - self._outermost:
            for handle in self._hooked.pop(module):
                handle.remove()
