"""Refuses an update whose loss or gradients are not finite, and undoes what its forward pass wrote."""

import math
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

OnNonFinite = Literal["Stop", "Skip"]
MOST_SKIPPED = 10  # updates in a row: after them the parameters themselves must be broken


class NonFiniteError(RuntimeError):
    """The loss or the norm of the gradients is not finite; nothing was updated."""


class FiniteGuard:
    """Whether updates may be made, by the norm of loss and gradients, which is the same on all ranks.

    skipped: updates that were left out.
    """

    def __init__(self, policy: OnNonFinite) -> None:
        self._policy = policy
        self._in_a_row = 0
        self.skipped = 0

    def state(self) -> dict[str, int]:
        """Return what a rank that comes back must know."""
        return {"skipped": self.skipped, "inARow": self._in_a_row}

    def resume(self, state: Mapping[str, int]) -> None:
        """Continue with what `state` returned on another rank."""
        self.skipped, self._in_a_row = int(state["skipped"]), int(state["inARow"])

    def allows(self, norm: float, iteration: int) -> bool:
        """Return whether the update of `iteration` may be made.

        Raises NonFiniteError under Stop, and under Skip after MOST_SKIPPED updates in a row.
        """
        if math.isfinite(norm):
            self._in_a_row = 0
            return True
        found = f"iteration {iteration}: the loss or the norm of the gradients is not finite ({norm})"
        if self._policy == "Stop":
            raise NonFiniteError(f"{found}: stopped before the update (onNonFinite: Stop)")
        if self._in_a_row == MOST_SKIPPED:
            raise NonFiniteError(f"{found}, as in the {MOST_SKIPPED} iterations before: stopped")
        self._in_a_row += 1
        self.skipped += 1
        return False


class BuffersBefore:
    """Copies of a model's buffers: a forward pass writes running statistics before its loss is known not to be finite.

    All are copied each time, in place: torch counts no version of the statistics that its kernels write.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._held: dict[tuple[nn.Module, str], tuple[Tensor, Tensor]] = {}  # the buffer, and its copy
        self.take()

    def take(self) -> None:
        """Copy all buffers as they are now."""
        found = {}
        for module in self._model.modules():
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    found[module, name] = (buffer, self._copied(module, name, buffer))
        self._held = found

    def _copied(self, module: nn.Module, name: str, buffer: Tensor) -> Tensor:
        """Return a copy, in the memory of the one before where that is possible."""
        _, copy = self._held.get((module, name), (buffer, None))
        like = copy is not None and copy.shape == buffer.shape and copy.dtype == buffer.dtype
        return copy.copy_(buffer.detach()) if copy is not None and like else buffer.detach().clone()

    @torch.no_grad()
    def put_back(self) -> None:
        """Give all buffers the values that they had at the last `take`."""
        for (module, name), (buffer, copy) in self._held.items():
            module._buffers[name] = buffer.copy_(copy)
