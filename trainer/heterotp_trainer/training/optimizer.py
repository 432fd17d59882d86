"""The optimizer of the built-in trainers."""

import inspect
from collections.abc import Iterable

import torch
from heterotp_api.training import Training
from torch import nn


class EagerAdamW(torch.optim.AdamW):
    """AdamW without torch's wrappers that disable its compiler: they import it, which takes seconds in every rank."""

    add_param_group = inspect.unwrap(torch.optim.AdamW.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.AdamW.zero_grad)
    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


def adamw(parameters: Iterable[nn.Parameter], training: Training) -> EagerAdamW:
    """Return AdamW; vectors (biases, norms) do not decay."""
    kept = list(parameters)
    groups = [
        {"params": [p for p in kept if p.dim() >= 2], "weight_decay": training.weight_decay},
        {"params": [p for p in kept if p.dim() < 2], "weight_decay": 0.0},
    ]
    return EagerAdamW(groups, lr=training.learning_rate)
