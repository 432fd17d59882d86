"""The matrix product of prunable linears: timed, slowed and emulated by the device."""

import time

import torch
from torch import Tensor

from heterotp_trainer.devices.phase_clock import phase
from heterotp_trainer.tensor_parallel.context import TPContext


def product(a: Tensor, b: Tensor, tp: TPContext) -> Tensor:
    """Return a @ b, [m, k] x [k, n], after the device let its 2 m k n operations take their time.

    It is computed in the precision of a and b, also where user code has enabled torch.autocast.
    """
    if torch.is_autocast_enabled(a.device.type):  # forward would have another precision than backward
        with torch.autocast(a.device.type, enabled=False):
            return product(a, b, tp)
    started = time.perf_counter()
    out = a @ b

    def again(part: float) -> Tensor:
        some = int(part * a.shape[1])
        return a[:, :some] @ b[:some]

    tp.device.settle_gemm((a.shape[0], a.shape[1], b.shape[1]), started, again)
    return out


def multiply(a: Tensor, b: Tensor, tp: TPContext) -> Tensor:
    """Return a @ b, [m, k] x [k, n], with its time booked on "matmul"; every product of a training step goes here."""
    with phase(tp.clock, "matmul"):
        return product(a, b, tp)


def rows_of(x: Tensor) -> Tensor:
    """Return x as a matrix: [..., K] -> [M, K]."""
    return x.flatten(0, -2)  # reshape(-1, 0) is ambiguous on a rank without units
