"""What held in the last iterations: a device may deliver an iteration's times several iterations later."""

from collections import deque
from dataclasses import dataclass

from heterotp_trainer.devices.phase_clock import MOST_PENDING

LATEST = MOST_PENDING + 1  # iterations; times that are later than this are dropped by the clock


@dataclass(frozen=True)
class IterationContext:
    """What must be known of an iteration to use its times.

    measured: whether its times enter statistics. decision_id: of the plan in force. full_work_factor: see Balancer.
    unslowed: matmul seconds without the injected slow-down, see Slowdown.
    """

    measured: bool = False
    decision_id: int = 0
    full_work_factor: float = 1.0
    unslowed: float = 0.0


class RecentContexts:
    """The contexts of the newest iterations."""

    def __init__(self) -> None:
        self._kept: deque[IterationContext] = deque(maxlen=LATEST)

    def add(self, context: IterationContext) -> None:
        """Add the context of the iteration that ends."""
        self._kept.append(context)

    def of(self, age: int | None) -> IterationContext:
        """Return the context of the iteration `age` iterations ago; one that is not measured where it is unknown."""
        return self._kept[-1 - age] if age is not None and age < len(self._kept) else IterationContext()
