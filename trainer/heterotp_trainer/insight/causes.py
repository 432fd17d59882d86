"""Why a slow rank is slow: what its machine says, joined to the blame. A pure decision; it changes no work.

A cause is named for a rank that is slow, and only by evidence: a number of its own machine that is clearly above that
of the ranks that are not slow, the time of its own stage, or an injection. A cause that was named stays until its
number has fallen to OFF of what named it, so that it does not come and go.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from heterotp_api.causes import CauseKind
from heterotp_api.stages import Stage

from heterotp_trainer.devices.machine.reading import NO_READING, Reading
from heterotp_trainer.insight.findings import MAIN, MUCH

SLOW_CHI = 1.2  # from which a rank is slow, also when its work has moved away and nobody waits for it
OFF = 0.5  # of every threshold, for a cause that is named already
EXPLAINED = 1.5  # chi over what injections ask for, above which a rank must have another cause, too
MOST_OF_RANK = 3

SHARES: dict[CauseKind, float] = {  # of time, beyond the ranks that are not slow: from here on a cause is named
    "cpuLimit": 0.10,
    "cpuContention": 0.15,
    "cpuSteal": 0.05,
    "memoryPressure": 0.10,
    "swapping": 0.20,
    "outOfMemory": 0.01,
    "ioPressure": 0.15,
    "gpuPower": 0.30,
    "gpuThermal": 0.15,
    "gpuShared": 0.50,
    "gpuErrors": 0.01,
}
STAGE_CAUSES: dict[CauseKind, Stage] = {"data": "data", "network": "link"}


@dataclass(frozen=True)
class Cause:
    """A rank, the kind of its cause, its share of time (of an iteration: data, network), and its amount: see WORDS."""

    rank: int
    kind: CauseKind
    share: float
    amount: float | None = None


@dataclass(frozen=True)
class RankSeen:
    """One rank of a window. lost: parts of the median iteration that others wait for it, by stage. chi: None: unknown.

    asked: the slow-down that injections ask for, 1: none.
    """

    lost: Mapping[Stage, float] = field(default_factory=dict)
    chi: float | None = None
    asked: float = 1.0
    machine: Reading = NO_READING


def causes(ranks: Sequence[RankSeen], before: Sequence[Cause] = ()) -> tuple[Cause, ...]:
    """Return the causes of all slow ranks, those of the slowest rank first, each rank's main one first.

    before: what was returned for the window before.
    """
    named = {(each.rank, each.kind) for each in before}
    slow = [rank for rank, seen in enumerate(ranks) if _is_slow(seen, any(rank == each for each, _ in named))]
    usual = _usual([seen.machine for rank, seen in enumerate(ranks) if rank not in slow], [r.machine for r in ranks])
    slow.sort(key=lambda rank: (-sum(ranks[rank].lost.values()), -(ranks[rank].chi or 0.0), rank))
    found = (_of_rank(rank, ranks[rank], usual, {kind for each, kind in named if each == rank}) for rank in slow)
    return tuple(cause for each in found for cause in each)


def _is_slow(seen: RankSeen, before: bool) -> bool:
    scale = OFF if before else 1.0
    return sum(seen.lost.values()) >= scale * MUCH or (seen.chi or 0.0) >= 1.0 + scale * (SLOW_CHI - 1.0)


def _usual(quick: Sequence[Reading], every: Sequence[Reading]) -> dict[CauseKind, float]:
    """Return the means of the ranks that are not slow, or the least of all where all are; 0: nothing is known."""
    known = [evidence(machine) for machine in quick or every]
    values = {kind: [each[kind] for each in known if kind in each] for kind in SHARES}
    return {kind: (sum(each) / len(each) if quick else min(each)) if each else 0.0 for kind, each in values.items()}


def _of_rank(rank: int, seen: RankSeen, usual: Mapping[CauseKind, float], named: set[CauseKind]) -> list[Cause]:
    injected = [Cause(rank, "injection", 1.0 - 1.0 / seen.asked, seen.asked)] if seen.asked > 1.0 else []
    others = _stage_causes(rank, seen, named)
    if not injected or (seen.chi or 0.0) > EXPLAINED * seen.asked:
        others += [
            Cause(rank, kind, share, _amount(kind, seen.machine))
            for kind, share in evidence(seen.machine).items()
            if share - usual[kind] >= _threshold(SHARES[kind], kind in named)
        ]
    return (injected + sorted(others, key=lambda each: -each.share))[:MOST_OF_RANK]


def _stage_causes(rank: int, seen: RankSeen, named: set[CauseKind]) -> list[Cause]:
    """Return the stages that are causes by themselves, where they make a good part of what the rank loses."""
    lost = sum(seen.lost.values())
    found = []
    for kind, stage in STAGE_CAUSES.items():
        share = seen.lost.get(stage, 0.0)
        if share >= _threshold(MUCH, kind in named) and share >= MAIN * lost:
            found.append(Cause(rank, kind, min(share, 1.0), _amount(kind, seen.machine)))
    return found


def _threshold(share: float, named: bool) -> float:
    return OFF * share if named else share


def evidence(machine: Reading) -> dict[CauseKind, float]:
    """Return the shares of time that a machine's numbers give for each kind; a kind without a known number is absent.

    A thread that its limit stops has no CPU either: that part is the limit's.
    """
    throttled = 0.0 if math.isnan(machine.throttled) else machine.throttled
    waited = machine.cpu_pressure if math.isnan(machine.delayed) else machine.delayed
    shares: dict[CauseKind, float] = {
        "cpuLimit": machine.throttled,
        "cpuContention": max(waited - throttled, 0.0) if not math.isnan(waited) else waited,
        "cpuSteal": machine.stolen,
        "memoryPressure": machine.memory_pressure,
        "swapping": machine.swapping,
        "outOfMemory": machine.oom,
        "ioPressure": machine.io_pressure,
        "gpuPower": machine.gpu_power,
        "gpuThermal": machine.gpu_thermal,
        "gpuShared": machine.gpu_others,
        "gpuErrors": machine.gpu_errors,
    }
    return {kind: share for kind, share in shares.items() if not math.isnan(share)}


def _amount(kind: CauseKind, machine: Reading) -> float | None:
    amounts: dict[CauseKind, float] = {
        "cpuLimit": machine.cpu_limit,
        "swapping": machine.faults,
        "network": machine.retransmitted,
    }
    amount = amounts.get(kind, math.nan)
    return None if math.isnan(amount) else amount
