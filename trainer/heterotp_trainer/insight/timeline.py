"""The newest iterations of all ranks, by stage, in a ring of fixed memory."""

from collections.abc import Sequence

import numpy as np
from heterotp_api.stages import OWN_STAGES

from heterotp_trainer.devices.stage_times import StageTimes
from heterotp_trainer.insight.blame import Array, Laps

MOST_ITERATIONS = 1000
MOST_BYTES = 16 << 20
PLANS = 16  # divisions of work that are remembered; iterations under older ones are forgotten


class Timeline:
    """A ring of the newest measured iterations; written and read by the training loop alone."""

    def __init__(self, boots: Sequence[str], iterations: int = MOST_ITERATIONS) -> None:
        """boots: see offsets."""
        self._boots, ranks, numbers = tuple(boots), len(boots), len(OWN_STAGES) + 3
        self.room = max(1, min(iterations, MOST_BYTES // (8 * ranks * numbers)))
        self._kept = np.zeros((self.room, ranks, numbers))
        self._span, self._number = np.zeros(self.room), np.zeros(self.room, dtype=np.int64)
        self._decision = np.full(self.room, -1, dtype=np.int64)
        self._work: dict[int, Array] = {}  # by decision_id
        self.count = 0  # iterations that were ever added

    def under(self, decision_id: int, work: Array) -> None:
        """Say how the work is divided in iterations of this decision: see Laps.work."""
        self._work[decision_id] = work
        for old in list(self._work)[:-PLANS]:
            del self._work[old]

    def add(self, iteration: int, decision_id: int, span: float, times: Sequence[StageTimes]) -> None:
        """Add an iteration of `span` seconds: the stage times of all ranks."""
        if decision_id not in self._work:
            return
        place = self.count % self.room
        self._kept[place] = [(*each.own, each.arrived, each.completed, each.meetings) for each in times]
        self._span[place], self._number[place], self._decision[place] = span, iteration, decision_id
        self.count += 1

    def laps(self, newest: int) -> list[Laps]:
        """Return the `newest` iterations that were added, oldest first; those of one division of work together."""
        places = [place % self.room for place in range(max(0, self.count - min(newest, self.room)), self.count)]
        known = [place for place in places if self._decision[place] in self._work]
        decisions = dict.fromkeys(self._decision[known].tolist())
        return [self._laps([p for p in known if self._decision[p] == each], each) for each in decisions]

    def _laps(self, places: list[int], decision_id: int) -> Laps:
        kept, stages = self._kept[places], len(OWN_STAGES)
        arrived, completed, meetings = (kept[:, :, stages + i] for i in range(3))
        work = self._work[decision_id]
        return Laps(kept[:, :, :stages], arrived, completed, meetings, self._span[places], work, self._boots)
