"""The optimizer of the built-in trainers."""

import inspect
from collections.abc import Collection, Iterable

import torch
from heterotp_api.training import Training
from torch import nn

BETAS, EPS = (0.9, 0.999), 1e-8


class EagerAdamW(torch.optim.AdamW):
    """AdamW without torch's wrappers that disable its compiler: they import it, which takes seconds in every rank."""

    add_param_group = inspect.unwrap(torch.optim.AdamW.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.AdamW.zero_grad)
    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


def adamw(
    parameters: Iterable[nn.Parameter], training: Training, embeddings: Collection[nn.Parameter] = ()
) -> EagerAdamW:
    """Return AdamW; vectors (biases, norms) do not decay, nor embeddings where decayEmbeddings is false."""
    kept = list(parameters)
    spared = {id(parameter) for parameter in embeddings} if training.decay_embeddings is False else set()
    decays = [p.dim() >= 2 and id(p) not in spared for p in kept]
    groups = [
        {"params": [p for p, yes in zip(kept, decays, strict=True) if yes], "weight_decay": training.weight_decay},
        {"params": [p for p, yes in zip(kept, decays, strict=True) if not yes], "weight_decay": 0.0},
    ]
    first, second = training.betas or BETAS
    return EagerAdamW(groups, lr=training.learning_rate, betas=(first, second), eps=training.eps or EPS)
