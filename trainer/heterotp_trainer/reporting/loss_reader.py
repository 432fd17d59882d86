"""The losses that a training loop hands over as tensors, read without waiting for the device."""

from contextlib import suppress

import torch
from torch import Tensor


class LossReader:
    """The loss of the newest iteration, and of the one before it.

    On an accelerator the newest loss is copied aside; it is read once the copy is complete, which the next iteration
    waits for. A failed run therefore shows the last loss that reached the host, and never waits for a broken device.
    """

    def __init__(self) -> None:
        self._known: float | None = None  # the newest loss that was read
        self._coming: Tensor | None = None  # on the host, valid once `_copied` has happened
        self._copied: torch.cuda.Event | None = None

    def take(self, loss: Tensor | None) -> float | None:
        """Take the loss of the iteration that ends; return that of the iteration before, else the last one known."""
        before = self.wait()
        self._coming = self._copied = None
        if loss is None:
            return before
        self._coming = loss.detach().to("cpu", non_blocking=True)
        if loss.device.type == "cuda":
            self._copied = torch.cuda.Event()
            self._copied.record(torch.cuda.current_stream(loss.device))
        return before

    def newest(self) -> float | None:
        """Return the newest loss that is on the host; never waits, and raises nothing where the device is broken."""
        with suppress(RuntimeError):
            if self._copied is None or self._copied.query():
                return self._read()
        return self._known

    def wait(self) -> float | None:
        """Return the newest loss; waits for its copy."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._read()

    def _read(self) -> float | None:
        if self._coming is not None:
            self._known = float(self._coming)
            self._coming = self._copied = None
        return self._known
