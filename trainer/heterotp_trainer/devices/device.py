"""What a rank computes on: a real device, or an emulated one of chosen speed."""

import math
import platform
import time
from collections.abc import Callable
from pathlib import Path

import torch
from heterotp_api.job import Device as DeviceSpec

from heterotp_trainer.devices.phase_clock import Clock, CudaPhaseClock, PhaseClock
from heterotp_trainer.devices.slowdown import Shape, Slowdown
from heterotp_trainer.errors import InputError

Again = Callable[[float], object]  # runs a part (0..1) of a matrix product once more
MAX_DEBT_SECONDS = 0.05  # an over-run (cores are shared) shortens later sleeps of the same kind, up to this


class Device:
    """A real device: the settle methods do nothing, unless a slow-down is injected."""

    emulated = False

    def __init__(self, torch_device: torch.device, name: str) -> None:
        self.torch_device = torch_device
        self.name = name
        self.slowdown: Slowdown | None = None

    @property
    def kind(self) -> str:
        """The kind that injections distinguish: cpu, cuda or emulated."""
        return "emulated" if self.emulated else self.torch_device.type

    @property
    def arithmetic(self) -> str:
        """What decides how numbers round; ranks with equal values compute equal results from equal inputs."""
        if self.torch_device.type == "cuda":
            return self.name
        threads = torch.get_num_threads()  # the split of a sum decides how it rounds
        return f"{_cpu_model()} {torch.backends.cpu.get_cpu_capability()} {threads}"

    @property
    def uuid(self) -> str:
        """What identifies its GPU among all of the machine; empty: it is none, or torch does not name it."""
        if self.torch_device.type != "cuda":
            return ""
        return str(getattr(torch.cuda.get_device_properties(self.torch_device), "uuid", ""))

    def supports(self, precision: str) -> bool:
        """Return whether matrix products of this precision (fp32, bf16) run here."""
        if precision != "bf16" or self.torch_device.type != "cuda":
            return True
        return torch.cuda.get_device_capability(self.torch_device) >= (8, 0)

    def settle_gemm(self, shape: Shape, started: float, again: Again = lambda part: None) -> None:
        """Take the time of a matrix product [m, k] x [k, n], shape (m, k, n), that started at `started`."""
        if self.slowdown is not None:
            self.slowdown.after(shape, started, again)

    def settle_fixed(self, spent_seconds: float) -> None:
        """Take the time of the fixed part of an iteration, of which `spent_seconds` have passed."""

    def settle_collective(self, nbytes: int, ranks: int) -> None:
        """Take the link's time of a finished all-reduce of `nbytes` over `ranks` ranks."""

    def settle_copy(self, started: float) -> None:
        """Take the time of copies in the device's memory that started at `started`."""

    def settle_transfer(self, nbytes: float, steps: int) -> None:
        """Take the link's time of finished transfers: `nbytes` in all, in `steps` sequential steps."""

    def forget_debt(self) -> None:
        """Forget earlier over-runs, so that what follows is timed by itself."""


class EmulatedDevice(Device):
    """Computes the real, small product, then sleeps for the rest of the emulated device's time."""

    emulated = True

    def __init__(
        self,
        spec: DeviceSpec,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(torch.device("cpu"), "emulated")
        assert spec.teraflops is not None
        self.operations_per_second = spec.teraflops * 1e12
        self.fixed_seconds = spec.fixed_seconds or 0.0
        self.link_latency_seconds = spec.link_latency_seconds or 0.0
        self.link_bytes_per_second = spec.link_bytes_per_second
        self.real_transfer_seconds = 0.0  # of a transfer on this machine, contained in the emulated time
        self._clock = clock
        self._sleep = sleep
        self._debts = {"product": 0.0, "fixed": 0.0}  # apart: else a late host makes products look fast

    def settle_gemm(self, shape: Shape, started: float, again: Again = lambda part: None) -> None:
        """Sleep until 2 m k n / speed, chi times under an injection, have passed since `started`."""
        seconds = 2 * math.prod(shape) / self.operations_per_second
        if self.slowdown is not None:
            self.slowdown.own_seconds += seconds
            seconds *= self.slowdown.chi
        self._settle("product", seconds, started)

    def settle_fixed(self, spent_seconds: float) -> None:
        """Sleep for the rest of the fixed part, of which `spent_seconds` were real."""
        if self.fixed_seconds:
            self._settle("fixed", self.fixed_seconds, self._clock() - spent_seconds)

    def settle_collective(self, nbytes: int, ranks: int) -> None:
        """Sleep latency + 2 (e - 1) / e x bytes / bandwidth, the transfer of a ring all-reduce over e ranks."""
        self.settle_transfer(2 * (ranks - 1) / ranks * nbytes, 1)

    def settle_copy(self, started: float) -> None:
        """Deduct the real seconds of copies from later sleeps: an accelerator copies fast beside its products."""
        self._owe("product", self._debts["product"] + self._clock() - started)

    def settle_transfer(self, nbytes: float, steps: int) -> None:
        """Sleep steps x latency + bytes / bandwidth."""
        seconds = steps * self.link_latency_seconds
        if self.link_bytes_per_second:
            seconds += nbytes / self.link_bytes_per_second
        if seconds > self.real_transfer_seconds:
            self._sleep(seconds - self.real_transfer_seconds)

    def forget_debt(self) -> None:
        """See Device.forget_debt."""
        self._debts = dict.fromkeys(self._debts, 0.0)

    def _settle(self, kind: str, wanted: float, started: float) -> None:
        rest = wanted - (self._clock() - started) - self._debts[kind]
        if rest > 0:
            self._sleep(rest)
        self._owe(kind, self._debts[kind] + (self._clock() - started) - wanted)

    def _owe(self, kind: str, seconds: float) -> None:
        self._debts[kind] = min(max(seconds, 0.0), MAX_DEBT_SECONDS)


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def resolve_device(spec: DeviceSpec, local_rank: int) -> Device:
    """Return the device of a rank; raise InputError where the machine lacks the type asked for."""
    if spec.type == "emulated":
        return EmulatedDevice(spec)
    wants_cuda = spec.type == "cuda" or (spec.type == "auto" and torch.cuda.is_available())
    if not wants_cuda:
        return Device(torch.device("cpu"), "cpu")
    count = torch.cuda.device_count()
    if local_rank >= count:
        raise InputError(
            f"device.type {spec.type}: local rank {local_rank} needs CUDA device {local_rank}, this machine has {count}"
        )
    device = torch.device("cuda", local_rank)
    return Device(device, f"cuda:{torch.cuda.get_device_name(device)}")


def clock_of(device: Device) -> Clock:
    """Return a phase clock of the kind that the device needs; on CUDA the device becomes torch's current one."""
    if device.torch_device.type == "cuda":
        torch.cuda.set_device(device.torch_device)
        return CudaPhaseClock(lambda: torch.cuda.Event(enable_timing=True))
    return PhaseClock()


def settled(clock: Clock, device: Device) -> dict[str, float]:
    """Return the seconds by phase of the iteration that ends, after the device took the time of the fixed part."""
    seconds = clock.take()
    if device.emulated:  # a real device's clock must be asked once per iteration
        device.settle_fixed(seconds["fixed"])
        for name, rest in clock.take().items():
            seconds[name] += rest
    return seconds


def open_device(spec: DeviceSpec, local_rank: int, precision: str, rank: int) -> tuple[Device, str]:
    """Return the rank's device and why it cannot be used; the gang collects these reasons before any rank ends."""
    try:
        device = resolve_device(spec, local_rank)
        check_precision(device, precision, rank)
        return device, ""
    except ValueError as error:
        return Device(torch.device("cpu"), "none"), str(error)


def check_precision(device: Device, precision: str, rank: int) -> None:
    """Raise InputError naming rank and device where the device lacks the precision."""
    if not device.supports(precision):
        raise InputError(f"spec.training.precision {precision}: rank {rank} on {device.name} has none; use fp32")
