"""The loss that a training loop hands over."""

from math import inf

import torch
from torch import Tensor

from heterotp_trainer.boundary.batch_hash import to_host
from heterotp_trainer.errors import InputError


def scalar_loss(loss: Tensor | float | None, call: str) -> Tensor | None:
    """Return the loss as a tensor of one number, None where there is none; call: who was given it.

    Raises InputError for anything else.
    """
    if loss is None:
        return None
    if not isinstance(loss, (Tensor, int, float)):
        raise InputError(f"{call}: loss: {type(loss).__name__}: must be a tensor of one number, or a number")
    made = torch.as_tensor(loss)
    if made.numel() != 1:
        raise InputError(f"{call}: loss: a tensor of shape {list(made.shape)}: must be one number, as loss.mean() is")
    return made.reshape(())


class ToldLoss:
    """The loss that a rank's report carries, so that all ranks' losses can be compared."""

    def __init__(self, *, late: bool) -> None:
        """late: `take` returns that of the iteration before, because some rank's device runs behind its host."""
        self._late = late
        self._before: Tensor | None = None

    def take(self, loss: Tensor | None) -> float:
        """Take the loss of the iteration that ends; return what its report carries, inf where the loop gave none."""
        if self._late:
            arriving = None if loss is None else to_host(loss.detach())  # read one iteration later
            loss, self._before = self._before, arriving
        return inf if loss is None else float(loss.detach())
