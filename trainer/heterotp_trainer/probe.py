"""First shares when no speed is declared: time a few matrix products of the real shape on every rank."""

import math
import statistics
import time

import torch

from heterotp_trainer.devices import Device

WARM_UP, TIMED = 3, 7
STEP = 1.05


def probe_speed(device: Device, rows: int, width: int, columns: int, dtype: torch.dtype) -> float:
    """Return products [rows, width] x [width, columns] per second: the median of a few, after warm-up."""
    left = torch.ones(rows, width, dtype=dtype, device=device.torch_device)
    right = torch.ones(width, columns, dtype=dtype, device=device.torch_device)
    seconds = [_timed(device, left, right) for _ in range(WARM_UP + TIMED)][WARM_UP:]
    return 1 / statistics.median(seconds)


def _timed(device: Device, left: torch.Tensor, right: torch.Tensor) -> float:
    started = time.perf_counter()
    left @ right
    if left.is_cuda:
        torch.cuda.synchronize(left.device)  # before training: nothing is in flight
    device.settle_gemm((*left.shape, right.shape[1]), started)
    return time.perf_counter() - started


def quantized(speeds: list[float]) -> list[float]:
    """Return speeds relative to the fastest in steps of 5 %: noise must not make two equal ranks unequal."""
    fastest = max(speeds)
    return [STEP ** round(math.log(speed / fastest, STEP)) for speed in speeds]
