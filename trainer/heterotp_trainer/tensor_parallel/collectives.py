"""The sums over the group, which the two conjugate functions of tensor parallelism need at their ends."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from heterotp_trainer.devices.phase_clock import phase
from heterotp_trainer.tensor_parallel.context import TPContext


def wide(x: Tensor, tp: TPContext) -> bool:
    """Return whether x travels in another type; the backend, and so the answer, is the same on all ranks."""
    # gloo lacks bf16 in some versions, and a sum of few bits drifts
    return x.dtype == torch.bfloat16 and dist.get_backend(tp.group) == "gloo"


def carrier(tp: TPContext) -> torch.device:
    """Return the device whose tensors travel: of gloo's calls only some know more than the host's memory."""
    return torch.device("cpu") if dist.get_backend(tp.group) == "gloo" else tp.device.torch_device


def start_sum(x: Tensor, tp: TPContext) -> Callable[[], Tensor]:
    """Begin to sum x over the group; return a function that waits for the sum, time booked on "wait".

    x must be the caller's own: the sum may take its place.
    """
    if tp.group is None:
        return lambda: x
    with phase(tp.clock, "wait"):
        summed = x.float() if wide(x, tp) else x.contiguous()
        work = dist.all_reduce(summed, group=tp.group, async_op=True)

    def finish() -> Tensor:
        with phase(tp.clock, "wait"):
            work.wait()
            tp.device.settle_collective(x.numel() * x.element_size(), tp.ranks)
            return summed.to(x.dtype)

    return finish


def reduced(x: Tensor, root: int, tp: TPContext) -> Tensor:
    """Return the sum of x over the group, at the root alone; x must be the caller's own."""
    summed = (x.float() if wide(x, tp) else x.contiguous()).to(carrier(tp))
    dist.reduce(summed, dst=root, group=tp.group)
    return summed.to(x.device, x.dtype)
