"""What a window of iterations shows: how much was lost, by whom, and who loses so much that it is worth a word."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from heterotp_api.stages import STAGES, Stage

from heterotp_trainer.insight.blame import Array, Blame, Laps, blame, lost_shares, stage_seconds

MUCH = 0.05  # of an iteration: a rank that loses less in its median iteration is not accused
MAIN = 0.25  # of what a rank loses: a stage with less is not named


@dataclass(frozen=True)
class Entry:
    """A rank and a stage to blame: lost seconds of an iteration, mean and median, and the share of all that is lost."""

    rank: int
    stage: Stage
    seconds: float
    steady_seconds: float
    share: float


@dataclass(frozen=True)
class Culprit:
    """A rank that the others wait for: seconds of the median iteration, in the stages that it is late in most."""

    rank: int
    seconds: float
    stages: tuple[Stage, ...]


@dataclass(frozen=True)
class Findings:
    """Of `iterations` iterations, of `span` seconds on average: lost seconds of one, means and medians, [e, S]."""

    iterations: int
    span: float
    seconds: Array
    steady: Array
    expected: Array

    @property
    def lost(self) -> float:
        """Seconds that an iteration loses."""
        return float(self.seconds.sum())

    def entries(self, most: int) -> list[Entry]:
        """Return the ranks and stages to blame, the most first, at most `most`."""
        order = np.argsort(-self.seconds, axis=None, kind="stable")[:most]
        places = [divmod(int(each), len(STAGES)) for each in order]
        return [
            Entry(rank, STAGES[s], float(self.seconds[rank, s]), float(self.steady[rank, s]), seconds / self.lost)
            for rank, s in places
            if (seconds := float(self.seconds[rank, s])) > 0
        ]

    def culprits(self) -> list[Culprit]:
        """Return the ranks that lose at least MUCH of the median iteration, the most first."""
        lost = self.steady.sum(axis=1)
        order = [int(rank) for rank in np.argsort(-lost, kind="stable") if lost[rank] >= MUCH * self.span > 0]
        return [Culprit(rank, float(lost[rank]), self._stages(rank)) for rank in order]

    def _stages(self, rank: int) -> tuple[Stage, ...]:
        own = self.steady[rank]
        order = [int(stage) for stage in np.argsort(-own, kind="stable") if own[stage] >= MAIN * own.sum()]
        return tuple(STAGES[stage] for stage in order or [int(own.argmax())])


def findings(every: Sequence[Laps]) -> Findings | None:
    """Return what the laps show together; None: there are none."""
    judged = [(laps, blame(laps)) for laps in every if laps.count]
    if not judged:
        return None
    shares = np.concatenate([each.shares for _, each in judged])
    together = Blame(shares, judged[-1][1].expected)
    span = float(np.concatenate([laps.span for laps, _ in judged]).mean())
    return Findings(len(shares), span, together.seconds / len(shares), together.steady, together.expected)


def of_one(laps: Laps, expected: Array) -> Array:
    """Return the lost seconds of a single iteration by what an earlier window expected: [e, S]."""
    found: Array = lost_shares(stage_seconds(laps), expected, laps.span)[0]
    return found
