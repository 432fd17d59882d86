"""Blame: the time that ranks lose to each other, divided among the ranks and stages that are late. Pure.

The ranks meet at the end of a stage, so that a stage takes as long as its latest rank. It should take T, the longest
time that any rank should take for its own work; what it takes longer is lost. Every moment after T is shared among the
ranks that are not there yet: two ranks that are equally late have half each, and a rank that is late beside a later one
has its share of the time that both miss (the Shapley value of this loss). Shares add up to the lost time.

Arrays: n iterations, e ranks, S stages as in STAGES.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from heterotp_api.stages import OWN_STAGES, STAGES, Stage
from numpy.typing import NDArray

from heterotp_trainer.insight.clocks import offsets

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Laps:
    """Measured iterations of all ranks under one division of work.

    own: seconds by rank and stage of OWN_STAGES, waits left out, [n, e, S - 1]. arrived, completed, meetings: see
    StageTimes, [n, e]. span: seconds of the iterations, [n]. work: of each rank in each stage, 1 is an even share,
    [e, S]. boots: see offsets.
    """

    own: Array
    arrived: Array
    completed: Array
    meetings: Array
    span: Array
    work: Array
    boots: Sequence[str]

    @property
    def count(self) -> int:
        """How many iterations these are."""
        return len(self.own)


@dataclass(frozen=True)
class Late:
    """The first on the critical path of one iteration: who was latest, in which stage, by how many seconds."""

    rank: int
    stage: Stage
    seconds: float


@dataclass(frozen=True)
class Blame:
    """Lost seconds of every iteration, by rank and stage: [n, e, S]; expected: see expected_seconds."""

    shares: Array
    expected: Array

    @property
    def seconds(self) -> Array:
        """Sums over all iterations, [e, S]."""
        found: Array = self.shares.sum(axis=0)
        return found

    @property
    def steady(self) -> Array:
        """Medians over the iterations, [e, S]: what is lost in every iteration; noise is late now here, now there."""
        found: Array = np.median(self.shares, axis=0) if len(self.shares) else self.shares.sum(axis=0)
        return found

    @property
    def lost(self) -> float:
        """Seconds that are lost over all iterations."""
        return float(self.shares.sum())

    def path(self) -> list[Late]:
        """Return the first to blame in each iteration; a tie: the lowest rank, its first stage."""
        return [_first(each) for each in self.shares]


def _first(shares: Array) -> Late:
    """Return who has the greatest share of one iteration's loss, [e, S]."""
    rank, stage = divmod(int(np.argmax(shares)), shares.shape[1])
    return Late(rank, STAGES[stage], float(shares[rank, stage]))


def blame(laps: Laps) -> Blame:
    """Return who is to blame for what the laps lose."""
    times = stage_seconds(laps)
    expected = expected_seconds(times, laps.work)
    return Blame(lost_shares(times, expected, laps.span), expected)


def stage_seconds(laps: Laps) -> Array:
    """Return the seconds by rank and stage, with the transfers as the last one: [n, e, S].

    A rank's transfers are what passes from the arrival of the last rank until the collective is complete at this rank.
    """
    ahead = offsets(laps.arrived, laps.completed, laps.boots)
    last = (laps.arrived - ahead).max(axis=1, keepdims=True) if laps.count else laps.arrived
    link = np.maximum(laps.completed - ahead - last, 0.0) * laps.meetings
    link[(laps.meetings == 0).any(axis=1)] = 0.0
    found: Array = np.concatenate([laps.own, link[:, :, None]], axis=2)
    return found


def expected_seconds(times: Array, work: Array) -> Array:
    """Return what each rank should take for its work in each stage, by medians of the laps: [e, S].

    The pace, seconds for an even share, is that at the upper quartile of speed among the ranks with work, as for chi.
    """
    ranks = len(work)
    if not len(times):
        return np.zeros_like(work)
    medians = np.median(times, axis=0)
    pace = np.sort(np.divide(medians, work, out=np.full_like(medians, -1.0), where=work > 0), axis=0)  # [e, S]
    idle = (work <= 0).sum(axis=0)  # these come first
    chosen = np.minimum(idle + (ranks - idle) // 4, ranks - 1)
    found: Array = pace[chosen, np.arange(work.shape[1])] * work
    return found


def lost_shares(times: Array, expected: Array, span: Array) -> Array:
    """Return the lost seconds of each iteration by rank and stage: [n, e, S].

    They are no more than what an iteration took beyond the longest time that a rank should take: lateness in two stages
    that end at the same collective is lost once.
    """
    due = expected.max(axis=0)
    shares = _shared(np.maximum(times - due, 0.0))
    least = expected[:, : len(OWN_STAGES)].sum(axis=1).max(initial=0.0)
    lost = shares.sum(axis=(1, 2))
    most = np.maximum(span - least, 0.0)
    part = np.divide(most, lost, out=np.ones_like(lost), where=lost > most)
    found: Array = shares * part[:, None, None]
    return found


def _shared(late: Array) -> Array:
    """Return each rank's share of the greatest lateness of each iteration and stage: [n, e, S]."""
    order = np.argsort(-late, axis=1, kind="stable")
    sorted_late = np.take_along_axis(late, order, axis=1)  # the latest first
    steps = sorted_late - np.concatenate([sorted_late[:, 1:], np.zeros_like(sorted_late[:, :1])], axis=1)
    counts = np.arange(1, late.shape[1] + 1, dtype=np.float64)[None, :, None]
    shares = np.cumsum((steps / counts)[:, ::-1], axis=1)[:, ::-1]
    found = np.empty_like(late)
    np.put_along_axis(found, order, shares, axis=1)
    return found
