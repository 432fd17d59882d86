"""Gradients over the group: the norm of a model that is cut by units, the mean or the sum of replicated parameters.

| call             | a rank holds                          | afterwards                                         |
|------------------|---------------------------------------|----------------------------------------------------|
| gradient_norm    | gradients of its units and replicas   | every rank: the norm over the whole model          |
| average_replicas | its gradients of replicated tensors   | their mean over the group, equal on all ranks      |
| sum_partial      | the part of its units in a gradient   | their sum over the group, equal on all ranks       |
"""

import math
from collections.abc import Iterable, Sequence
from functools import wraps
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import clip_grad

from heterotp_trainer.devices.phase_clock import phase
from heterotp_trainer.errors import InputError
from heterotp_trainer.tensor_parallel.collectives import carrier, start_sum
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.unit_spec import shard_spec


def gradient_norm(parameters: Iterable[nn.Parameter], tp: TPContext, loss: Tensor | None = None) -> float:
    """Return the norm of all gradients, in which units count once; the same on all ranks (all ranks).

    norm^2 = sum over ranks of |sharded gradients|^2 + |replicated gradients|^2, in float64. It is not finite where a
    gradient, or the loss, of any rank is not. The host waits for the device once.
    """
    sharded: list[Tensor] = []
    replicated: list[Tensor] = []
    for parameter in parameters:
        if parameter.grad is not None:
            (replicated if shard_spec(parameter) is None else sharded).append(parameter.grad)
    own, shared = (_square(each, tp.device.torch_device) for each in (sharded, replicated))
    total = own + 0.0 * shared  # a value that is not finite on one rank reaches all of them
    if loss is not None:
        total = total + 0.0 * loss.detach().double()
    with tp.where.waiting("the norm of the gradients"):  # on a device that runs behind the host, here it waits
        if tp.ranks > 1:
            with phase(tp.clock, "wait"):
                total = total.to(carrier(tp))
                dist.all_reduce(total, group=tp.group)
        return math.sqrt(float(total.to(shared.device) + shared))


def _square(gradients: Sequence[Tensor], device: torch.device) -> Tensor:
    """Return the sum of the squares of all values, in float64."""
    if not gradients:
        return torch.zeros((), dtype=torch.float64, device=device)
    wide = torch.float64 if any(each.dtype == torch.float64 for each in gradients) else torch.float32
    norms = torch._foreach_norm(list(gradients), dtype=wide)  # one kernel for many, as clip_grad_norm_ does
    return torch.stack(norms).double().square().sum()


def scale_gradients(parameters: Iterable[nn.Parameter], factor: float) -> None:
    """Multiply all gradients by a factor."""
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.mul_(factor)


def average_replicas(parameters: Iterable[nn.Parameter], tp: TPContext, *, measure: bool = False) -> Tensor:
    """Average the gradients of replicated parameters over the group in one flat all-reduce (all ranks).

    A rank that has no gradient of a parameter counts as 0; no rank gets one where none has it. measure: return how far
    this rank's gradient of each such parameter was from the mean, and the norm of the mean: [replicated, 2] float64 on
    the device; else [0, 2].
    """
    replicas = [p for p in parameters if p.requires_grad and shard_spec(p) is None]
    measured = torch.zeros(len(replicas) if measure else 0, 2, dtype=torch.float64, device=tp.device.torch_device)
    if not replicas:
        return measured
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in replicas]
    with phase(tp.clock, "wait"), tp.where.waiting("the mean of replicated gradients"):
        holders = gradients[0].new_tensor([p.grad is not None for p in replicas])  # ranks with a gradient
        flat = torch.cat([holders, *(gradient.reshape(-1) for gradient in gradients)])
        dist.all_reduce(flat, group=tp.group)
        holders, *parts = flat.split([len(replicas), *(gradient.numel() for gradient in gradients)])
    for number, (replica, gradient, part) in enumerate(zip(replicas, gradients, parts, strict=True)):
        if replica.grad is None and float(holders[number]) == 0:
            continue
        mean = part.view_as(gradient) / tp.ranks
        if measure:
            measured[number] = torch.stack([torch.dist(gradient, mean), mean.norm()])
        replica.grad = gradient.copy_(mean)
    return measured


def mark_partial(parameter: nn.Parameter) -> None:
    """Mark a replicated parameter inside of a sharded region: each rank's gradient is the part of its units."""
    parameter.heterotp_partial = True  # type: ignore[attr-defined]


def is_partial(parameter: Tensor) -> bool:
    """Return whether the gradient of a replicated parameter is a part of a sum over the group."""
    return bool(getattr(parameter, "heterotp_partial", False))


def sum_partial(parameters: Iterable[nn.Parameter], tp: TPContext) -> None:
    """Sum the gradients of parameters marked as partial over the group in one flat all-reduce (all ranks).

    A rank that has no gradient counts as 0, and gets the sum. Call it once per update, after all micro-batches.
    """
    partial = [p for p in parameters if p.requires_grad and is_partial(p)]
    if not partial or tp.ranks == 1:
        return
    for parameter in partial:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    gradients = [parameter.grad for parameter in partial if parameter.grad is not None]
    flat = start_sum(torch.cat([gradient.reshape(-1) for gradient in gradients]), tp, "partial gradients")()
    for gradient, part in zip(gradients, flat.split([each.numel() for each in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


def refuse_plain_clipping() -> None:
    """Make torch's clip_grad_norm_ raise InputError for sharded parameters, of which it sees only this rank's units.

    The function may have been imported by name before, so the one that it calls is replaced.
    """
    scale = clip_grad._clip_grads_with_norm_  # what clip_grad_norm_ calls with the parameters, once it has their norm
    if not hasattr(scale, "refuses_shards"):
        clip_grad._clip_grads_with_norm_ = _refusing(scale)


def _refusing(scale: Any) -> Any:
    @wraps(scale)
    def checked(parameters: Any, *arguments: Any, **options: Any) -> Any:
        every = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        if any(shard_spec(parameter) is not None for parameter in every):
            raise InputError(
                "clip_grad_norm_: it sees only the units of this rank, so that every rank would clip by another norm: "
                "use session.step(gradient_clip=...)"
            )
        return scale(every, *arguments, **options)

    checked.refuses_shards = True  # type: ignore[attr-defined]
    return checked
