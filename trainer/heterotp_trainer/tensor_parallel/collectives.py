"""Sums over the group: Megatron's conjugate functions f (backward) and g (forward) of tensor parallelism.

| call      | every rank holds | afterwards                            |
|-----------|------------------|---------------------------------------|
| start_sum | its own x        | every rank: sum of x over the group   |
| summed    | its own x        | the same, after the wait              |
| greatest  | its own x        | every rank: the greatest, by element  |
| reduced   | its own x        | root: that sum; other ranks: no value |
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from heterotp_trainer.devices.phase_clock import phase
from heterotp_trainer.tensor_parallel.context import TPContext


def wide(x: Tensor, tp: TPContext) -> bool:
    """Return whether x is summed in fp32 instead of its own precision; the same on all ranks."""
    # gloo lacks bf16 in some versions, and a sum of few bits drifts
    return x.dtype == torch.bfloat16 and dist.get_backend(tp.group) == "gloo"


def carrier(tp: TPContext) -> torch.device:
    """Return the device whose tensors the backend can send: with gloo the CPU, since few of its calls take others."""
    return torch.device("cpu") if dist.get_backend(tp.group) == "gloo" else tp.device.torch_device


def start_sum(x: Tensor, tp: TPContext, name: str) -> Callable[[], Tensor]:
    """Start to sum x over the group; return a function that waits for the sum, of the shape of x.

    Time is booked on "wait". The sum may be written into x. name: of the layer, for who watches the rank.
    """
    if tp.group is None:
        return lambda: x
    with phase(tp.clock, "wait"):
        total = x.float() if wide(x, tp) else x.contiguous()
        work = dist.all_reduce(total, group=tp.group, async_op=True)

    def finish() -> Tensor:
        with phase(tp.clock, "wait"), tp.where.waiting(f"the sum of {name}"):
            work.wait()
            tp.device.settle_collective(x.numel() * x.element_size(), tp.ranks)
            return total.to(x.dtype)

    return finish


def summed(x: Tensor, tp: TPContext, name: str, stage: str) -> Tensor:
    """Return the sum of x over the group, see start_sum; the ranks' clocks are aligned by when they arrive here.

    stage: of what follows the sum.
    """
    finish = start_sum(x, tp, name)
    arrived, tp.clock.stage = tp.clock.moment, stage
    out = finish()
    if tp.group is not None:
        tp.clock.met(arrived)
    return out


def greatest(x: Tensor, tp: TPContext, name: str) -> Tensor:
    """Return the greatest value over the group, element by element; may overwrite x. name: as in start_sum."""
    if tp.group is None:
        return x
    with phase(tp.clock, "wait"), tp.where.waiting(f"the maximum of {name}"):
        dist.all_reduce(x, op=dist.ReduceOp.MAX, group=tp.group)
        tp.device.settle_collective(x.numel() * x.element_size(), tp.ranks)
    return x


def reduced(x: Tensor, root: int, tp: TPContext) -> Tensor:
    """Return the sum of x over the group at rank `root`; on other ranks the result means nothing. May overwrite x."""
    total = (x.float() if wide(x, tp) else x.contiguous()).to(carrier(tp))
    dist.reduce(total, dst=root, group=tp.group)
    return total.to(x.device, x.dtype)
