"""The reports of the last measured iterations, and their medians."""

import statistics
from collections import deque
from collections.abc import Sequence

from heterotp_trainer.boundary.exchange import Report, comparable
from heterotp_trainer.devices.phase_clock import PHASES

MOST_STEPS = 100_000  # the newest iterations, of which the report gives minimum, median and maximum
MEDIANS = (*PHASES, "full", "pace_ratio")

Reports = tuple[Report, ...]


def _value(report: Report, name: str) -> float:
    return report.seconds[name] if name in PHASES else float(getattr(report, name))


class ReportWindow:
    """All ranks' reports of the last `size` measured iterations under one plan, and the seconds of every iteration."""

    def __init__(self, size: int) -> None:
        self.size = size  # iterations of a median: the window of the policy in force
        self.step_seconds: deque[float] = deque(maxlen=MOST_STEPS)  # of measured iterations only
        self._recent: deque[Reports] = deque()
        self._since_injection = 0  # measured iterations since the injected slow-downs changed, and one before

    def resize(self, size: int) -> None:
        """Keep the reports of the last `size` iterations from now on."""
        self.size = size
        self._drop_old()

    def take(self, reports: Reports) -> bool:
        """Add the reports of one iteration; return False where they are not comparable and so not added."""
        if not comparable(reports):
            return False
        self._since_injection += 1
        self.step_seconds.append(sum(reports[0].seconds.values()))
        if self._recent and reports[0].decision_id != self._recent[-1][0].decision_id:
            self._recent.clear()  # a median is of one plan
        self._recent.append(reports)
        self._drop_old()
        return True

    def _drop_old(self) -> None:
        while len(self._recent) > self.size:
            self._recent.popleft()

    def injections_changed(self) -> None:
        """Measure slow-downs from the next iteration on only."""
        self._since_injection = 0

    def of_decision(self, decision_id: int) -> list[Reports]:
        """Return the reports of the window that are of one decision."""
        return [reports for reports in list(self._recent) if reports[0].decision_id == decision_id]

    def iteration_seconds(self) -> float | None:
        """Return the median seconds of the last iterations; None before the first measured one."""
        return statistics.median(list(self.step_seconds)[-self.size :]) if self.step_seconds else None

    def medians(self) -> list[dict[str, float]]:
        """Return each rank's medians of MEDIANS, in seconds but for pace_ratio; empty before any measured iteration."""
        recent = list(self._recent)
        return [_medians([reports[rank] for reports in recent]) for rank in range(len(recent[0]))] if recent else []

    def slowdown(self, rank: int) -> float | None:
        """Return chi as measured: matmul seconds over those without the injected slow-down; None without products."""
        recent = list(self._recent)[-max(1, self._since_injection - 1) :]
        matmul = statistics.median(reports[rank].seconds["matmul"] for reports in recent)
        unslowed = statistics.median(reports[rank].unslowed for reports in recent)
        return matmul / (unslowed or matmul) if matmul else None


def _medians(reports: Sequence[Report]) -> dict[str, float]:
    return {name: statistics.median(_value(report, name) for report in reports) for name in MEDIANS}
