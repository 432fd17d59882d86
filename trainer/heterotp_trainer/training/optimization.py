"""AdamW, learning-rate schedules, gradient norms over shards, and gradients of replicas on unlike devices."""

import inspect
import math
from collections.abc import Iterable

import torch
import torch.distributed as dist
from heterotp_api.training import Training
from torch import Tensor, nn

from heterotp_trainer.devices.phase_clock import phase
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.unit_spec import shard_spec


class EagerAdamW(torch.optim.AdamW):
    """AdamW without the wrappers by which torch keeps its compiler away: they import it, seconds in every rank."""

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


def learning_rate(training: Training, iteration: int, total: int) -> float:
    """Return the rate of an iteration (from 0): linear warm-up, then constant or half a cosine down to 0."""
    warmup = training.warmup_iterations
    if iteration < warmup:
        return training.learning_rate * (iteration + 1) / warmup
    if training.schedule == "constant":
        return training.learning_rate
    progress = (iteration - warmup) / max(1, total - warmup)
    return training.learning_rate * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the rate of all groups."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def clip_gradients(parameters: Iterable[nn.Parameter], limit: float, tp: TPContext) -> None:
    """Scale all gradients so that their norm over the whole model is at most `limit`; every unit counts once."""
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
            dist.all_reduce(total)
    norm = math.sqrt(float(total) + replicated)
    if norm > limit:
        for gradient in gradients:
            gradient.mul_(limit / norm)


def average_replicas(parameters: Iterable[nn.Parameter], tp: TPContext) -> None:
    """Average the gradients of replicated parameters over the group in one flat all-reduce."""
    gradients = [p.grad for p in parameters if p.grad is not None and shard_spec(p) is None]
    with phase(tp.clock, "wait"):
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        dist.all_reduce(flat, group=tp.group)
        flat /= tp.ranks
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


def step_around(optimizer: torch.optim.Optimizer, parts: Iterable[tuple[nn.Parameter, int, Tensor]]) -> None:
    """Step the optimizer, but leave these rows or columns and their state as they are.

    parts: parameter, dimension, numbers. A zero gradient would still move them by momentum and weight decay.
    """
    kept = [(p, dim, ids, p.detach().index_select(dim, ids), _state(optimizer, p, dim, ids)) for p, dim, ids in parts]
    optimizer.step()
    for parameter, dim, ids, values, state in kept:
        parameter.data.index_copy_(dim, ids, values)
        for name, tensor in optimizer.state[parameter].items():
            if _like(tensor, parameter):
                before = state.get(name)
                tensor.index_copy_(dim, ids, torch.zeros_like(values, dtype=tensor.dtype) if before is None else before)


def _state(optimizer: torch.optim.Optimizer, parameter: nn.Parameter, dim: int, ids: Tensor) -> dict[str, Tensor]:
    state = optimizer.state.get(parameter, {})
    return {name: t.index_select(dim, ids) for name, t in state.items() if _like(t, parameter)}


def _like(value: object, parameter: nn.Parameter) -> bool:
    return isinstance(value, Tensor) and value.shape == parameter.shape
