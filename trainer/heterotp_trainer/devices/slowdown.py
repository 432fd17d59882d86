"""An injected slow-down: makes a rank's matrix products take chi times as long
(docs/algorithms.md, Injecting a straggler)."""

import functools
import math
import time
from collections.abc import Callable
from typing import ClassVar

import torch
from heterotp_api.slowdown import SlowdownMode

from heterotp_trainer.errors import InputError

Shape = tuple[int, int, int]  # m, k, n of [m, k] x [k, n]
CALIBRATION_CYCLES = 20_000_000


class Slowdown:
    """One rank's slow-down; own_seconds: of products without it, since the value was last reset.

    The added time is proportional to the executed product, so that a rank that computes less is slowed less.
    """

    def __init__(
        self,
        chi: float,
        mode: SlowdownMode,
        now: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.chi, self.mode = chi, mode
        self.own_seconds = 0.0
        self._now, self._sleep = now, sleep

    def after(self, shape: Shape, started: float, again: Callable[[float], object]) -> None:
        """Add (chi - 1) times the seconds of the product that started at `started` and ends now."""
        own = self._now() - started
        self.own_seconds += own
        if self.mode == "sleep":
            self._sleep((self.chi - 1) * own)
        else:
            self._repeat(again)

    def _repeat(self, again: Callable[[float], object]) -> None:
        extra = self.chi - 1
        for _ in range(math.floor(extra)):
            again(1.0)
        if extra % 1:
            again(extra % 1)


class CudaSlowdown(Slowdown):
    """Acts in the CUDA stream: the host runs ahead, so that its sleep would overlap with kernels."""

    seconds: ClassVar[
        dict[Shape, float]
    ] = {}  # of each shape without slow-down; a new shape is timed, which waits for the device

    def __init__(
        self, chi: float, mode: SlowdownMode, cycles_per_second: float, timed: Callable[[Callable[[], object]], float]
    ) -> None:
        super().__init__(chi, mode)
        self._cycles_per_second, self._timed = cycles_per_second, timed

    def after(self, shape: Shape, started: float, again: Callable[[float], object]) -> None:
        """Add (chi - 1) times the seconds of a product of this shape; a new shape is timed once, by events."""
        if shape not in self.seconds:
            self.seconds[shape] = self._timed(lambda: again(1.0))
        own = self.seconds[shape]
        self.own_seconds += own
        if self.mode == "repeat":
            self._repeat(again)
        else:
            torch.cuda._sleep(int((self.chi - 1) * own * self._cycles_per_second))


def _device_seconds(work: Callable[[], object]) -> float:
    """Return the seconds between two events around the work; waits for the device."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3


@functools.cache
def _cycles_per_second() -> float:
    torch.cuda._sleep(CALIBRATION_CYCLES)  # the first one wakes the device
    return CALIBRATION_CYCLES / _device_seconds(lambda: torch.cuda._sleep(CALIBRATION_CYCLES))


def refusal(mode: SlowdownMode | None, kind: str) -> str:
    """Return why a mode has no effect on a device of this kind; empty: it has."""
    if kind == "cuda" and mode == "sleep":
        return "mode sleep: has no effect on cuda, where the host runs ahead: use spin or repeat"
    if kind != "cuda" and mode == "spin":
        return f"mode spin: needs cuda, this rank computes on {kind}: use sleep or repeat"
    return ""


def mode_of(mode: SlowdownMode | None, kind: str) -> SlowdownMode:
    """Return the mode in which a device of this kind is slowed; None: its own."""
    return mode or ("spin" if kind == "cuda" else "sleep")


def make_slowdown(chi: float, mode: SlowdownMode | None, kind: str) -> Slowdown:
    """Return the slow-down for a kind of device; raise InputError for a mode that has no effect there."""
    chosen = mode_of(mode, kind)
    if problem := refusal(chosen, kind):
        raise InputError(problem)
    if kind != "cuda":
        return Slowdown(chi, chosen)
    return CudaSlowdown(chi, chosen, _cycles_per_second() if chosen == "spin" else 0.0, _device_seconds)
