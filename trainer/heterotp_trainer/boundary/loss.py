"""The loss that a training loop hands over."""

import torch
from torch import Tensor

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
