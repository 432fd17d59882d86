"""Streams a model and its optimizer to rank 0 in canonical order and back, one tensor at a time.

| name                          | tensor                                                                               |
|-------------------------------|--------------------------------------------------------------------------------------|
| `model/<parameter>`           | cut by units, or replicated                                                          |
| `optimizer/<parameter>/<key>` | of the parameter's shape: cut like it; else (step counters) the same on all ranks    |
| `buffer/<buffer>`             | replicated                                                                           |
| `columns/<linear>/<key>`      | see Slot: what pruning measured and remembered                                       |
| `state/<name>/<rank>/<n>`     | one rank's own, see rank_states.py                                                   |

| call    | rank i holds                           | rank 0                            |
|---------|----------------------------------------|-----------------------------------|
| gather  | its shards, and all replicated tensors | receives every whole tensor       |
| scatter | receives the same                      | reads and sends every whole tensor |
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor, nn

from heterotp_trainer.checkpoint.storage import Read
from heterotp_trainer.errors import InputError
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.unit_spec import ShardSpec, shard_spec

Named = dict[str, nn.Parameter]


@dataclass(frozen=True)
class Slot:
    """A tensor that is no parameter's: cut by units, or each rank's own, which a checkpoint holds as [ranks, ...].

    tensor: None where there is none yet. put: sets it. averaged: on other shares each rank gets the mean over the
    ranks; else it gets nothing.
    """

    name: str
    tensor: Tensor | None
    spec: ShardSpec | None
    put: Callable[[Tensor], None]
    averaged: bool = False


@dataclass(frozen=True)
class Targets:
    """Where `scatter` puts tensors beside parameters and optimizer.

    same_shares: whether the checkpoint was written under this unit plan. states: receives the tensors of ranks' states.
    filled: receives the names of the buffers that were filled.
    """

    buffers: Mapping[str, Tensor] = field(default_factory=dict)
    slots: Mapping[str, Slot] = field(default_factory=dict)
    states: dict[str, Tensor] = field(default_factory=dict)
    same_shares: bool = False
    filled: set[str] = field(default_factory=set)


def tensors(parameters: Named, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, Tensor, ShardSpec | None]]:
    """Yield name, tensor and ShardSpec of the whole training state, in the same order on all ranks."""
    for name, parameter in parameters.items():
        yield f"model/{name}", parameter.data, shard_spec(parameter)
        state = optimizer.state.get(parameter, {})
        for key in sorted(state):
            value = state[key]
            if not isinstance(value, Tensor):  # see optimizer_settings.py
                continue
            spec = shard_spec(parameter) if value.shape == parameter.shape and value.dim() else None
            yield f"optimizer/{name}/{key}", value, spec


def gather(
    parameters: Named,
    optimizer: torch.optim.Optimizer,
    tp: TPContext,
    write: Callable[[str, Tensor], None],
    pace: Callable[[int], None] = lambda nbytes: None,
) -> None:
    """Pass every whole tensor to `write` on rank 0, one at a time; pace: called with its bytes (all ranks)."""
    for name, tensor, spec in tensors(parameters, optimizer):
        whole = tensor if spec is None else assemble(tensor, spec, tp)
        if tp.rank == 0:
            assert whole is not None
            write(name, whole)
        shape = tensor.shape if spec is None else spec.full_shape(tensor.shape)
        pace(math.prod(shape) * tensor.element_size())


def gather_slots(
    slots: Sequence[Slot],
    tp: TPContext,
    write: Callable[[str, Tensor], None],
    pace: Callable[[int], None] = lambda nbytes: None,
) -> None:
    """Pass every slot's whole tensor to `write` on rank 0 (all ranks); pace: as in `gather`."""
    for slot in slots:
        if slot.tensor is None:
            continue
        whole = _stack(slot.tensor, tp) if slot.spec is None else assemble(slot.tensor, slot.spec, tp)
        if whole is not None:
            write(slot.name, whole)
        shape = (tp.ranks, *slot.tensor.shape) if slot.spec is None else slot.spec.full_shape(slot.tensor.shape)
        pace(math.prod(shape) * slot.tensor.element_size())


def _stack(own: Tensor, tp: TPContext) -> Tensor | None:
    """Return on rank 0 the tensors of all ranks, of one shape, as [ranks, ...]; None elsewhere."""
    local = own.detach().cpu().contiguous()
    if tp.rank != 0:
        dist.send(local, dst=0, group=tp.control_group)
        return None
    whole = torch.empty((tp.ranks, *local.shape), dtype=local.dtype)
    whole[0] = local
    for rank in range(1, tp.ranks):
        dist.recv(whole[rank], src=rank, group=tp.control_group)
    return whole


def assemble(shard: Tensor, spec: ShardSpec, tp: TPContext) -> Tensor | None:
    """Return the whole tensor on rank 0, None elsewhere; shards travel point to point, empty ones not at all."""
    local = shard.detach().cpu().contiguous()
    if tp.rank != 0:
        if local.numel():
            dist.send(local, dst=0, group=tp.control_group)
        return None
    if tp.ranks == 1:
        return local
    whole = torch.empty(spec.full_shape(shard.shape), dtype=shard.dtype)
    for rank in range(tp.ranks):
        parts = _parts(whole, spec, tp, rank)
        if not sum(part.numel() for part in parts):
            continue
        if rank and len(parts) == 1 and parts[0].is_contiguous():
            dist.recv(parts[0], src=rank, group=tp.control_group)  # to where it belongs
            continue
        own = local
        if rank:
            own = torch.empty(spec.shape(shard.shape, len(tp.unit_plan.owned(spec.family, rank))), dtype=shard.dtype)
            dist.recv(own, src=rank, group=tp.control_group)
        for part, source in zip(parts, own.split([part.shape[spec.dim] for part in parts], spec.dim), strict=True):
            part.copy_(source)
    return whole


def _parts(whole: Tensor, spec: ShardSpec, tp: TPContext, rank: int) -> list[Tensor]:
    """Return what a rank owns of a whole tensor, in order; the parts share its memory."""
    rows = spec.rows_per_unit
    ranges = tp.unit_plan.ranges(spec.family, rank)
    return [whole.narrow(spec.dim, start * rows, (stop - start) * rows) for start, stop in ranges]


def scatter(
    parameters: Named,
    optimizer: torch.optim.Optimizer,
    tp: TPContext,
    read: Read,
    targets: Targets | None = None,
) -> None:
    """Fill parameters and optimizer state from rank 0's whole tensors (all ranks).

    Parameters are filled in place, optimizer state is replaced. Raises InputError where the
    checkpoint is of another model.
    """
    targets = targets or Targets()
    missing = dict.fromkeys(parameters)
    while (header := read()) is not None:
        name, dtype, shape, whole = header.name, header.dtype, header.shape, header.whole
        if _is_target(name, dtype, shape, whole, targets, tp):
            continue
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


def _is_target(
    name: str, dtype: torch.dtype, shape: tuple[int, ...], whole: Tensor | None, targets: Targets, tp: TPContext
) -> bool:
    """Put a tensor that is neither a parameter's nor the optimizer's; return whether it is such a one (all ranks)."""
    kind, _, rest = name.partition("/")
    if kind == "buffer":
        if rest not in targets.buffers:
            raise InputError(f"the checkpoint holds {name}, the model has no such buffer")
        _fill(name, targets.buffers[rest], _distribute(whole, dtype, shape, None, tp))
        targets.filled.add(rest)
    elif kind == "state":
        targets.states[name] = _distribute(whole, dtype, shape, None, tp)
    elif kind == "columns":
        slot = targets.slots.get(name)
        if slot is not None:
            _put(slot, dtype, shape, whole, targets.same_shares, tp)
    return kind in ("buffer", "state", "columns")


def _put(
    slot: Slot, dtype: torch.dtype, shape: tuple[int, ...], whole: Tensor | None, same_shares: bool, tp: TPContext
) -> None:
    """Give a slot this rank's part of rank 0's whole tensor (all ranks)."""
    device = tp.device.torch_device
    if slot.spec is not None:
        slot.put(_distribute(whole, dtype, shape, slot.spec, tp).to(device))
    elif same_shares:
        slot.put(_unstack(whole, dtype, shape, tp).to(device))
    elif slot.averaged:
        mean = whole.mean(0) if whole is not None else None
        slot.put(_distribute(mean, dtype, shape[1:], None, tp).to(device))


def _unstack(whole: Tensor | None, dtype: torch.dtype, shape: tuple[int, ...], tp: TPContext) -> Tensor:
    """Return this rank's own of rank 0's [ranks, ...]."""
    if whole is None:
        own = torch.empty(shape[1:], dtype=dtype)
        dist.recv(own, src=0, group=tp.control_group)
        return own
    for rank in range(1, tp.ranks):
        dist.send(whole[rank].contiguous(), dst=rank, group=tp.control_group)
    return whole[0].clone()


def _spec_of(parameter: nn.Parameter, shape: tuple[int, ...]) -> ShardSpec | None:
    spec = shard_spec(parameter)
    return spec if spec is not None and shape == spec.full_shape(parameter.shape) else None


def _fill(name: str, target: Tensor, value: Tensor) -> None:
    if value.shape != target.shape:
        raise InputError(f"{name}: shape {tuple(value.shape)} in the checkpoint, {tuple(target.shape)} in the model")
    target.data.copy_(value)


def _distribute(
    whole: Tensor | None, dtype: torch.dtype, shape: tuple[int, ...], spec: ShardSpec | None, tp: TPContext
) -> Tensor:
    """Return this rank's part of rank 0's tensor: its units, or the whole tensor where it is replicated."""
    if spec is None:
        value = whole if whole is not None else torch.empty(shape, dtype=dtype)
        dist.broadcast(value, src=0, group=tp.control_group)
        return value
    if whole is not None:
        if tp.ranks == 1:
            return whole
        for rank in range(1, tp.ranks):
            if tp.unit_plan.owned(spec.family, rank) and whole.numel():
                dist.send(_joined(whole, spec, tp, rank), dst=rank, group=tp.control_group)
        return _joined(whole, spec, tp, 0).clone()
    part = torch.empty(spec.shape(shape, len(tp.owned(spec.family))), dtype=dtype)
    if part.numel():
        dist.recv(part, src=0, group=tp.control_group)
    return part


def _joined(whole: Tensor, spec: ShardSpec, tp: TPContext, rank: int) -> Tensor:
    """Return a rank's shard of a whole tensor, contiguous; it may share its memory."""
    parts = _parts(whole, spec, tp, rank)
    if len(parts) == 1:
        return parts[0].contiguous()
    return torch.cat(parts, spec.dim) if parts else whole.narrow(spec.dim, 0, 0)
