"""Under which circumstances the last iterations ran: a device's times may come iterations later."""

from collections import deque
from dataclasses import dataclass

from heterotp_trainer.devices.phase_clock import MOST_PENDING

LATEST = MOST_PENDING + 1  # iterations; times that come later do not come at all


@dataclass(frozen=True)
class IterationContext:
    """What must be known of an iteration to use its times: `measured` says whether they may be used at all.

    decision: number of the plan in force; relieved: see Balancer; unslowed: see Slowdown.
    """

    measured: bool = False
    decision_id: int = 0
    full_work_factor: float = 1.0
    unslowed: float = 0.0


class RecentContexts:
    """The newest iterations' circumstances."""

    def __init__(self) -> None:
        self._kept: deque[IterationContext] = deque(maxlen=LATEST)

    def add(self, context: IterationContext) -> None:
        """Take those of the iteration that ends."""
        self._kept.append(context)

    def of(self, age: int | None) -> IterationContext:
        """Return those of the iteration `age` iterations ago; where nothing is known of it, not measured."""
        return self._kept[-1 - age] if age is not None and age < len(self._kept) else IterationContext()
