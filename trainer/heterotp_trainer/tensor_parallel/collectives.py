"""The two conjugate collectives of tensor parallelism (Megatron's f and g), each an autograd Function.

| function          | every rank holds before | after            | backward                      |
|-------------------|-------------------------|------------------|-------------------------------|
| copy_to_group (f) | x                       | x                | all-reduce (sum) of the grads |
| reduce_from_group (g) | a partial sum       | the sum, the same| identity                      |
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from heterotp_trainer.clock import phase
from heterotp_trainer.tensor_parallel.context import TPContext


def all_reduce(x: Tensor, tp: TPContext) -> Tensor:
    """Return the sum of x over the group, in a tensor of its own; its time is booked on "wait"."""
    if tp.group is None:
        return x
    with phase(tp.clock, "wait"):
        # gloo lacks bf16 sums in some versions, and a sum of few bits drifts
        widened = x.float() if x.dtype == torch.bfloat16 and not x.is_cuda else x
        summed = widened.contiguous().clone() if widened is x else widened
        dist.all_reduce(summed, group=tp.group)
        tp.device.settle_collective(x.numel() * x.element_size(), tp.ranks)
        return summed.to(x.dtype)


class _CopyToGroup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, tp: TPContext) -> Tensor:
        ctx.tp = tp
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return all_reduce(grad, ctx.tp), None


class _ReduceFromGroup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, tp: TPContext) -> Tensor:
        return all_reduce(x, tp)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


def copy_to_group(x: Tensor, tp: TPContext) -> Tensor:
    """Return x; its gradient is summed over the group (f)."""
    copied: Tensor = _CopyToGroup.apply(x, tp)
    return copied


def reduce_from_group(x: Tensor, tp: TPContext) -> Tensor:
    """Return the sum of all ranks' x; its gradient passes as it is (g)."""
    reduced: Tensor = _ReduceFromGroup.apply(x, tp)
    return reduced
