"""How probes and calibration time work on a device: by the host's clock, which waits until the device is done."""

import statistics
import time
from collections.abc import Callable

import torch

from heterotp_trainer.devices.device import Device


def work_seconds(device: Device, work: Callable[[], object], in_a_row: int = 1) -> float:
    """Return the seconds of the work, the mean over `in_a_row` calls."""
    started = time.perf_counter()
    for _ in range(in_a_row):
        work()
    if device.torch_device.type == "cuda":
        torch.cuda.synchronize(device.torch_device)
    return (time.perf_counter() - started) / in_a_row


def median_seconds(
    device: Device, work: Callable[[], object], repeats: int, *, warm_up: int = 0, in_a_row: int = 1
) -> float:
    """Return the median over `repeats` measurements, after `warm_up` measurements that are left out."""
    for _ in range(warm_up):
        work_seconds(device, work, in_a_row)
    return statistics.median([work_seconds(device, work, in_a_row) for _ in range(repeats)])
