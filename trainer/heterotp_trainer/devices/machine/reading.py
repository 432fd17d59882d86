"""A reading: what a machine says of the last seconds, made of counters that were read at several moments. Pure."""

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import pairwise

UNKNOWN = math.nan
MANY_FAULTS = 50.0  # major page faults a second: each is a wait for a disk
WINDOW_SECONDS = 12.0  # that a reading is of


@dataclass(frozen=True)
class GpuState:
    """A GPU at one moment: why its clocks are low, how many other processes are on it, ECC errors up to now.

    errors: that were not corrected.
    """

    power: bool | None = None
    thermal: bool | None = None
    others: int | None = None
    errors: int | None = None


@dataclass(frozen=True)
class Counters:
    """What is read at one moment `at`, seconds of a clock; counters only grow; None: not known."""

    at: float
    periods: int | None = None  # of the CPU limit's enforcement
    throttled_periods: int | None = None
    throttled: float | None = None  # seconds
    cpu_limit: float | None = None  # CPUs
    delayed: float | None = None  # seconds
    cpu_pressure: float | None = None  # seconds
    memory_pressure: float | None = None
    io_pressure: float | None = None
    stolen: tuple[int, int] | None = None
    faults: int | None = None
    oom_kills: int | None = None
    segments: tuple[int, int] | None = None
    gpu: GpuState = GpuState()


@dataclass(frozen=True)
class Reading:
    """What a machine says of the last seconds; NaN: not known. Shares are of time, 0..1, where no unit is given.

    throttled: by the CPU limit of `cpu_limit` CPUs. delayed: the training thread could run and had no CPU.
    cpu_pressure, memory_pressure, io_pressure: a task of the cgroup (else of the node) waited for it. stolen: by the
    hypervisor, of the node's CPU time. swapping: with many major faults of the rank; faults: a second. oom: in which
    the kernel killed a process of the cgroup. gpu_*: in which the GPU's clock was lowered, others were on it, or an
    error was not corrected. retransmitted: of all TCP segments.
    """

    throttled: float = UNKNOWN
    cpu_limit: float = UNKNOWN
    delayed: float = UNKNOWN
    cpu_pressure: float = UNKNOWN
    memory_pressure: float = UNKNOWN
    io_pressure: float = UNKNOWN
    stolen: float = UNKNOWN
    swapping: float = UNKNOWN
    faults: float = UNKNOWN
    oom: float = UNKNOWN
    gpu_power: float = UNKNOWN
    gpu_thermal: float = UNKNOWN
    gpu_others: float = UNKNOWN
    gpu_errors: float = UNKNOWN
    retransmitted: float = UNKNOWN

    def numbers(self) -> tuple[float, ...]:
        """Return the fields in order."""
        return astuple(self)

    @classmethod
    def of(cls, numbers: Sequence[float]) -> "Reading":
        """Return the reading of which these are the numbers."""
        return cls(*(UNKNOWN if math.isnan(number) else number for number in numbers))


NO_READING = Reading()
NUMBERS = len(fields(Reading))


def reading(taken: Sequence[Counters]) -> Reading:
    """Return what counters say that were taken one after the other; fewer than two say nothing."""
    if len(taken) < 2 or taken[-1].at <= taken[0].at:
        return NO_READING
    first, last = taken[0], taken[-1]
    span = last.at - first.at

    def rate(name: str) -> float:
        grown = _grown(getattr(first, name), getattr(last, name))
        return UNKNOWN if grown is None else grown / span

    return Reading(
        throttled=_throttled(first, last),
        cpu_limit=UNKNOWN if last.cpu_limit is None else last.cpu_limit,
        delayed=_share(rate("delayed")),
        cpu_pressure=_share(rate("cpu_pressure")),
        memory_pressure=_share(rate("memory_pressure")),
        io_pressure=_share(rate("io_pressure")),
        stolen=_part(first.stolen, last.stolen),
        swapping=_intervals(taken, _often),
        faults=rate("faults"),
        oom=_intervals(taken, lambda a, b: _grows(a.oom_kills, b.oom_kills)),
        gpu_power=_intervals(taken, lambda a, b: b.gpu.power),
        gpu_thermal=_intervals(taken, lambda a, b: b.gpu.thermal),
        gpu_others=_intervals(taken, lambda a, b: None if b.gpu.others is None else b.gpu.others > 0),
        gpu_errors=_intervals(taken, lambda a, b: _grows(a.gpu.errors, b.gpu.errors)),
        retransmitted=_part(first.segments, last.segments),
    )


def _grown(first: float | None, last: float | None) -> float | None:
    return None if first is None or last is None else max(last - first, 0.0)


def _grows(first: float | None, last: float | None) -> bool | None:
    grown = _grown(first, last)
    return None if grown is None else grown > 0


def _share(value: float) -> float:
    return value if math.isnan(value) else min(value, 1.0)


def _throttled(first: Counters, last: Counters) -> float:
    """Return the share of time in which the limit stopped the rank: the kernel adds up the seconds of all CPUs.

    So it is at most the share of periods in which the limit was reached. A cgroup without a limit has no periods.
    """
    seconds, periods = _grown(first.throttled, last.throttled), _grown(first.periods, last.periods)
    reached = _grown(first.throttled_periods, last.throttled_periods)
    if seconds is None or periods is None or reached is None:
        return UNKNOWN
    return min(seconds / (last.at - first.at), reached / periods, 1.0) if periods else 0.0


def _part(first: tuple[int, int] | None, last: tuple[int, int] | None) -> float:
    if first is None or last is None:
        return UNKNOWN
    part, whole = (max(b - a, 0) for a, b in zip(first, last, strict=True))
    return min(part / whole, 1.0) if whole else 0.0


def _often(first: Counters, last: Counters) -> bool | None:
    grown = _grown(first.faults, last.faults)
    return None if grown is None or last.at <= first.at else grown / (last.at - first.at) >= MANY_FAULTS


def _intervals(taken: Sequence[Counters], holds: Callable[[Counters, Counters], bool | None]) -> float:
    """Return the share of the time between two readings in which something holds; NaN: it is never known."""
    known = [(b.at - a.at, held) for a, b in pairwise(taken) if (held := holds(a, b)) is not None]
    whole = sum(seconds for seconds, _ in known)
    return sum(seconds for seconds, held in known if held) / whole if whole else UNKNOWN
