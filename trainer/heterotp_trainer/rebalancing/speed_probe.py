"""The speed of a rank that its own work does not show: before training, and while it owns too little work."""

import math
import time
from typing import Any

import torch
import torch.distributed as dist

from heterotp_trainer.devices.device import Device
from heterotp_trainer.launch.environment import RankEnvironment
from heterotp_trainer.launch.json_messages import gather_json
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.rebalancing.timing import median_seconds
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.product import product

WARM_UP, TIMED = 3, 7  # products of a probe before training
STEP = 1.05
CALLS = 3  # timed calls of a probe beside training
PROBE_EVERY = 5  # boundaries


def probe_speed(device: Device, rows: int, width: int, columns: int, dtype: torch.dtype) -> float:
    """Return products [rows, width] x [width, columns] per second: the median of TIMED, after WARM_UP."""
    left = torch.ones(rows, width, dtype=dtype, device=device.torch_device)
    right = torch.ones(width, columns, dtype=dtype, device=device.torch_device)

    def settled_product() -> None:
        device.forget_debt()  # else one late product makes the next ones look fast
        started = time.perf_counter()
        left @ right
        device.settle_gemm((rows, width, columns), started)

    return 1 / median_seconds(device, settled_product, TIMED, warm_up=WARM_UP)


def initial_speeds(
    environment: RankEnvironment,
    device: Device,
    group: dist.ProcessGroup,
    shape: tuple[int, int, int],
    dtype: torch.dtype,
) -> list[float] | None:
    """Return the relative speed of every rank as spec.initialShares asks; None for even shares (all ranks).

    shape: (m, k, n) of the product [m, k] x [k, n] that a probe times on each rank.
    """
    how = environment.spec.initial_shares
    if how == "even" or environment.ranks == 1:
        return None
    if how == "declared":
        groups = environment.spec.worker_groups
        return [g.relative_speed or 1.0 for g in groups for _ in range(g.pods * g.processes_per_pod)]
    return quantized(gather_json(probe_speed(device, *shape, dtype), float, environment.ranks, group))


class PaceProbe:
    """Times the smallest call that calibration measured, between iterations; on CUDA by events, read boundaries later.

    pace_ratio: seconds of that call over its seconds at calibration; 0 while the rank's own work shows its speed.
    """

    def __init__(self, tp: TPContext) -> None:
        self._tp = tp
        self.pace_ratio, self._boundaries = 0.0, 0
        self._shape: tuple[int, int, int] | None = None
        self._factors: list[torch.Tensor] = []  # x, w, dy of that shape: only products are timed, as at calibration
        self._pending: tuple[Any, Any] | None = None

    def update(self, costs: Costs) -> None:
        """Probe every PROBE_EVERY boundaries where this rank owns too little work to show its speed."""
        self._boundaries += 1
        if not costs.classes or not costs.idle[self._tp.rank]:
            self.pace_ratio = 0.0
        elif not self.pace_ratio or self._boundaries % PROBE_EVERY == 0:
            self.pace_ratio = self.take(costs) or self.pace_ratio

    def take(self, costs: Costs) -> float:
        """Return the call's seconds over those at calibration; 0 where they are unknown, or not measured yet."""
        k = max(_probed(costs), key=lambda k: max(curves[k].seconds[1] for curves in costs.curves))
        curve, linears = costs.curves[self._tp.rank][k], costs.classes[k]
        shape = linears.rows, int(curve.columns[1]), curve.outputs or linears.outputs[self._tp.rank]
        if not all(shape) or not curve.seconds[1]:
            return 0.0
        return self._seconds(shape) / curve.seconds[1]

    def _seconds(self, shape: tuple[int, int, int]) -> float:
        if shape != self._shape:
            self._shape, self._factors = shape, self._ones(*shape)
        if self._tp.device.torch_device.type != "cuda":
            return median_seconds(self._tp.device, self._call, CALLS, warm_up=1)  # caches are cold at first
        seconds = 0.0
        if self._pending is not None and self._pending[1].query():
            seconds, self._pending = self._pending[0].elapsed_time(self._pending[1]) * 1e-3, None
        if self._pending is None:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            self._call()
            end.record()
            self._pending = start, end
        return seconds

    def _ones(self, rows: int, columns: int, outputs: int) -> list[torch.Tensor]:
        shapes = ((rows, columns), (outputs, columns), (rows, outputs))
        return [torch.ones(shape, dtype=self._tp.dtype, device=self._tp.device.torch_device) for shape in shapes]

    def _call(self) -> None:
        """Compute the products of one forward and backward call, slowed as injected; own_seconds stays as it was."""
        tp, device = self._tp, self._tp.device
        device.forget_debt()  # else a late product of the model makes the probe look fast
        own = device.slowdown.own_seconds if device.slowdown is not None else 0.0
        x, w, dy = self._factors
        for a, b in ((x, w.t()), (dy, w), (dy.t(), x)):
            product(a, b, tp)
        if device.slowdown is not None:
            device.slowdown.own_seconds = own


def _probed(costs: Costs) -> list[int]:
    """Return the classes of linears to probe by: not the logits', whose products are long beside all others."""
    every = range(len(costs.classes))
    return [k for k in every if costs.classes[k].family != "vocab"] or list(every)


def quantized(speeds: list[float]) -> list[float]:
    """Return speeds relative to the fastest, rounded to powers of STEP: noise must not make equal ranks unequal."""
    fastest = max(speeds)
    return [STEP ** round(math.log(speed / fastest, STEP)) for speed in speeds]
