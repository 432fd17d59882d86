"""Gradients over the group: the norm of a model that is cut by units, and the mean of replicated parameters.

| call             | a rank holds                          | afterwards                                    |
|------------------|---------------------------------------|-----------------------------------------------|
| clip_gradients   | gradients of its units and replicas   | the same, scaled by min(1, limit / norm)      |
| average_replicas | its gradients of replicated tensors   | their mean over the group, equal on all ranks |
"""

import math
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn

from heterotp_trainer.devices.phase_clock import phase
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.unit_spec import shard_spec


def clip_gradients(parameters: Iterable[nn.Parameter], limit: float, tp: TPContext) -> None:
    """Scale all gradients so that the norm over the whole model is at most `limit`; units count once (all ranks).

    norm^2 = sum over ranks of |sharded gradients|^2 + |replicated gradients|^2, in float64.
    """
    sharded, replicated, gradients = 0.0, 0.0, []
    for parameter in parameters:
        if parameter.grad is None:
            continue
        gradients.append(parameter.grad)
        square = float(parameter.grad.float().square().sum())
        if shard_spec(parameter) is None:
            replicated += square
        else:
            sharded += square
    total = torch.tensor(sharded, dtype=torch.float64)
    if tp.ranks > 1:
        with phase(tp.clock, "wait"):
            dist.all_reduce(total, group=tp.control_group)
    norm = math.sqrt(float(total) + replicated)
    if norm > limit:
        for gradient in gradients:
            gradient.mul_(limit / norm)


def average_replicas(parameters: Iterable[nn.Parameter], tp: TPContext) -> None:
    """Average the gradients of replicated parameters over the group in one flat all-reduce (all ranks)."""
    gradients = [p.grad for p in parameters if p.grad is not None and shard_spec(p) is None]
    with phase(tp.clock, "wait"):
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        dist.all_reduce(flat, group=tp.group)
        flat /= tp.ranks
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))
