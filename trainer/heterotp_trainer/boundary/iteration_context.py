"""Under which circumstances the last iterations ran: a device's times may come iterations later."""

from collections import deque
from dataclasses import dataclass

from heterotp_trainer.devices.phase_clock import MOST_PENDING

LATEST = MOST_PENDING + 1  # iterations; times that come later do not come at all


@dataclass(frozen=True)
class Circumstances:
    """What must be known of an iteration to use its times: `measured` says whether they may be used at all.

    decision: number of the plan in force; relieved: see Balancer; unslowed: see Slowdown.
    """

    measured: bool = False
    decision: int = 0
    relieved: float = 1.0
    unslowed: float = 0.0


class Recent:
    """The newest iterations' circumstances."""

    def __init__(self) -> None:
        self._kept: deque[Circumstances] = deque(maxlen=LATEST)

    def add(self, circumstances: Circumstances) -> None:
        """Take those of the iteration that ends."""
        self._kept.append(circumstances)

    def of(self, age: int | None) -> Circumstances:
        """Return those of the iteration `age` iterations ago; where nothing is known of it, not measured."""
        return self._kept[-1 - age] if age is not None and age < len(self._kept) else Circumstances()
