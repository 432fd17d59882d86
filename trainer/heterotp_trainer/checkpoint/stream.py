"""Streams a model and its optimizer to rank 0 in canonical order and back, one tensor at a time.

Names: `model/<parameter>` and `optimizer/<parameter>/<state>`. A state tensor of the parameter's shape is cut like the
parameter; other optimizer state (step counters) is the same on all ranks.

| call    | rank i holds                           | rank 0                            |
|---------|----------------------------------------|-----------------------------------|
| gather  | its shards, and all replicated tensors | receives every whole tensor       |
| scatter | receives the same                      | reads and sends every whole tensor |
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from heterotp_trainer.errors import InputError
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.unit_spec import ShardSpec, shard_spec

Named = dict[str, nn.Parameter]


def tensors(parameters: Named, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, Tensor, ShardSpec | None]]:
    """Yield name, tensor and ShardSpec of the whole training state, in the same order on all ranks."""
    for name, parameter in parameters.items():
        yield f"model/{name}", parameter.data, shard_spec(parameter)
        state = optimizer.state.get(parameter, {})
        for key in sorted(state):
            value = state[key] if isinstance(state[key], Tensor) else torch.tensor(float(state[key]))
            spec = shard_spec(parameter) if value.shape == parameter.shape and value.dim() else None
            yield f"optimizer/{name}/{key}", value, spec


def gather(
    parameters: Named, optimizer: torch.optim.Optimizer, tp: TPContext, write: Callable[[str, Tensor], None]
) -> None:
    """Pass every whole tensor to `write` on rank 0, one at a time (all ranks)."""
    for name, tensor, spec in tensors(parameters, optimizer):
        whole = tensor if spec is None else _assemble(tensor, spec, tp)
        if tp.rank == 0:
            assert whole is not None
            write(name, whole)


def _assemble(shard: Tensor, spec: ShardSpec, tp: TPContext) -> Tensor | None:
    """Return the whole tensor on rank 0, None elsewhere; shards travel point to point, empty ones not at all."""
    local = shard.detach().cpu().contiguous()
    if tp.rank != 0:
        if local.numel():
            dist.send(local, dst=0, group=tp.control_group)
        return None
    whole = torch.empty(spec.full_shape(shard.shape), dtype=shard.dtype)
    for rank in range(tp.ranks):
        units = tp.unit_plan.owned(spec.family, rank)
        if rank == 0:
            part = local
        else:
            part = torch.empty(spec.shape(shard.shape, len(units)), dtype=shard.dtype)
            if part.numel():
                dist.recv(part, src=rank, group=tp.control_group)
        whole.index_copy_(spec.dim, spec.rows(units), part)
    return whole


def scatter(
    parameters: Named,
    optimizer: torch.optim.Optimizer,
    tp: TPContext,
    read: Iterator[tuple[str, Tensor]] | None,
) -> None:
    """Fill parameters and optimizer state from rank 0's whole tensors (all ranks).

    read: on rank 0 only. Parameters are filled in place, optimizer state is replaced. Raises InputError where the
    checkpoint is of another model.
    """
    missing = dict.fromkeys(parameters)
    while (header := _next_header(read, tp)) is not None:
        name, dtype, shape, whole = header
        kind, _, rest = name.partition("/")
        path, _, key = rest.rpartition("/") if kind == "optimizer" else (rest, "", "")
        parameter = parameters.get(path)
        if parameter is None:
            raise InputError(f"the checkpoint holds {name}, the model has no such parameter")
        spec = _spec_of(parameter, shape)
        value = _distribute(whole, dtype, shape, spec, tp)
        if kind == "model":
            _fill(name, parameter, value)
            missing.pop(path, None)
        else:
            optimizer.state[parameter][key] = value.to(parameter.device) if value.dim() else value
    if missing:
        raise InputError(f"the checkpoint lacks parameters of the model: {', '.join(list(missing)[:3])}")


def _spec_of(parameter: nn.Parameter, shape: tuple[int, ...]) -> ShardSpec | None:
    spec = shard_spec(parameter)
    return spec if spec is not None and shape == spec.full_shape(parameter.shape) else None


def _fill(name: str, parameter: nn.Parameter, value: Tensor) -> None:
    if value.shape != parameter.shape:
        raise InputError(f"{name}: shape {tuple(value.shape)} in the checkpoint, {tuple(parameter.shape)} in the model")
    parameter.data.copy_(value)


Header = tuple[str, torch.dtype, tuple[int, ...], Tensor | None]


def _next_header(read: Iterator[tuple[str, Tensor]] | None, tp: TPContext) -> Header | None:
    """Return the next tensor's name, type and shape on all ranks, the tensor itself on rank 0; None at the end."""
    whole: Tensor | None = None
    header: list[Any] = [None]
    if read is not None:
        item = next(read, None)
        if item is not None:
            whole = item[1]
            header = [(item[0], whole.dtype, tuple(whole.shape))]
    dist.broadcast_object_list(header, src=0, group=tp.control_group)
    return None if header[0] is None else (*header[0], whole)


def _distribute(
    whole: Tensor | None, dtype: torch.dtype, shape: tuple[int, ...], spec: ShardSpec | None, tp: TPContext
) -> Tensor:
    """Return this rank's part of rank 0's tensor: its units, or the whole tensor where it is replicated."""
    if spec is None:
        value = whole.clone() if whole is not None else torch.empty(shape, dtype=dtype)
        dist.broadcast(value, src=0, group=tp.control_group)
        return value
    if whole is not None:
        for rank in range(1, tp.ranks):
            part = spec.cut(whole, tp.unit_plan.owned(spec.family, rank))
            if part.numel():
                dist.send(part, dst=rank, group=tp.control_group)
        return spec.cut(whole, tp.unit_plan.owned(spec.family, 0))
    part = torch.empty(spec.shape(shape, len(tp.owned(spec.family))), dtype=dtype)
    if part.numel():
        dist.recv(part, src=0, group=tp.control_group)
    return part
