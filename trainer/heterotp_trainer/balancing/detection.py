"""Detection of ranks whose speed is not the expected one, from medians of a window
(docs/algorithms.md, Who is a straggler).

One detector serves every strategy. Ratios are measured over expected seconds, [e]; two references exist:
- the other ranks: the upper quartile of speed, each by the work that it owns and the speed that its share was made
  for. The fastest rank is no reference: at a noise of 5 % and 8 ranks it would flag a rank in 41 % of iterations.
- the shares in force, where units may move: the speed that they were made for. Ranks with uneven shares rightly
  differ, and a recovery is a change, too.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from heterotp_api.policy import BalancingSettings

from heterotp_trainer.balancing.history import Array, History, Observation
from heterotp_trainer.balancing.reshard_problem import ReshardProblem
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.ownership import UNKNOWN_OWNERSHIP, Ownership
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.plans.work_plan import WorkPlan

HARDLY_ANY = 0.01  # of the median rank's seconds
AT_ONCE = 0.30  # a ratio above 1 + this in one window is enough; above 1 + `enter` it takes two disjoint windows


@dataclass(frozen=True)
class Drift:
    """How slowness differs from the one that the shares in force were made for."""

    problem: ReshardProblem
    before: Observation | None  # medians of the window before
    expected: Array  # seconds for an even share, [e]
    ratio: Array  # measured over expected slowness, without what all ranks have in common, [e]
    ranks: tuple[int, ...]  # slower or faster than expected, ascending
    enter: float

    @cached_property
    def slower(self) -> tuple[int, ...]:
        """The drifted ranks that are slower than expected, ascending."""
        return tuple(rank for rank in self.ranks if self.ratio[rank] > 1)

    @cached_property
    def uneven(self) -> bool:
        """Whether the slowest rank of a family is late by more than `enter` in two windows, whatever was expected."""
        late = self.problem.imbalance > self.enter
        return late and self.before is not None and replace(self.problem, seen=self.before).imbalance > self.enter


@dataclass(frozen=True)
class Detection:
    """What the newest window shows: its medians (None: it is not full), the stragglers, and the drift of speeds.

    drift is None where units may not move, or where no window is full.
    """

    seen: Observation | None
    stragglers: tuple[int, ...]
    drift: Drift | None = None


def detect(history: History, policy: BalancingSettings, plan: WorkPlan, costs: Costs) -> Detection:
    """Return the stragglers and the drift; where units may move, stragglers are slower than their shares allow for."""
    seen, unit_plan = history.median(), plan.ownership.unit_plan
    if not policy.moves_units or seen is None or unit_plan is None or not costs.classes:
        return Detection(seen, slower_than_others(history, policy, plan.stragglers, plan.ownership, costs))
    drift = _drift(history, policy, plan.ownership, ReshardProblem(costs, seen, unit_plan))
    return Detection(seen, tuple(rank for rank in drift.slower if seen.full[rank] > 0), drift)


def slower_than_others(
    history: History,
    policy: BalancingSettings,
    known: Collection[int],
    ownership: Ownership = UNKNOWN_OWNERSHIP,
    costs: Costs | None = None,
) -> tuple[int, ...]:
    """Return the ranks that are slower than the reference of all ranks, ascending; known: the present stragglers."""
    newest, before = history.median(), history.median(1)
    if newest is None:
        return tuple(sorted(known))
    now, then = (
        None if seen is None else slowdowns(seen, ownership.unit_plan, ownership.slowness, costs)
        for seen in (newest, before)
    )
    assert now is not None
    return flagged(now, then, policy, known)


def flagged(now: Array, before: Array | None, policy: BalancingSettings, known: Collection[int]) -> tuple[int, ...]:
    """Return the ranks whose ratio is too high, ascending: the one hysteresis of all detection.

    now, before: ratios of the newest two windows, [e]; before is None until there are two. A rank is added above
    1 + AT_ONCE in one window, or above 1 + `enter` in both; a known one is removed below 1 + `exit`.
    """
    twice = np.zeros(len(now), dtype=bool)
    if before is not None:
        twice = (now > 1 + policy.enter) & (before > 1 + policy.enter)
    added = (now > 1 + max(AT_ONCE, policy.enter)) | twice
    staying = np.zeros(len(now), dtype=bool)
    staying[list(known)] = True
    return tuple(int(rank) for rank in np.flatnonzero(added | (staying & (now >= 1 + policy.exit))))


def slowdowns(
    seen: Observation, unit_plan: UnitPlan | None, slowness: Sequence[float], costs: Costs | None = None
) -> Array:
    """Return chi of each rank: how many times longer its products take than those of its work should: [e].

    The seconds for an even share (by the measured curves, else by the share owned) are divided by the slowness that
    the shares were made for, so that whole heads, or a rank without any, are nobody's slowness; then by the reference
    rank's, at the upper quartile of speed. slowness: 1 / relative speed by rank; empty: equal speeds.
    """
    even = _even_seconds(seen, unit_plan, costs)
    relative: Array = even / np.asarray(slowness) if len(slowness) else even
    ordered = np.sort(relative)
    working = ordered[ordered >= HARDLY_ANY * ordered[len(ordered) // 2]]
    reference = working[len(working) // 4]
    return relative / reference if reference > 0 else np.ones_like(relative)


def _even_seconds(seen: Observation, unit_plan: UnitPlan | None, costs: Costs | None) -> Array:
    """Return the seconds of the products of an even share: [e]; 0 for a rank whose speed is not known."""
    if unit_plan is None:
        return seen.full
    if costs is not None and costs.classes:
        return ReshardProblem(costs.owned_by(unit_plan), seen, unit_plan).even_seconds
    shares = np.array([unit_plan.share(rank) for rank in range(unit_plan.ranks)]) * unit_plan.ranks
    found: Array = np.divide(seen.full, shares, out=np.zeros_like(seen.full), where=shares > 0)
    return found


def _drift(history: History, policy: BalancingSettings, ownership: Ownership, problem: ReshardProblem) -> Drift:
    expected, before = expected_seconds(ownership, problem), history.median(1)
    ratio = relative_slowness(problem, expected)

    def found(ranks: tuple[int, ...]) -> Drift:
        return Drift(problem, before, expected, ratio, ranks, policy.enter)

    if ownership.moved_at is not None and history.count - ownership.moved_at < history.window:
        return found(())  # curves are not exact: only a full window under the new shares counts
    if float(ratio.max()) < 1 + policy.exit and float(ratio.min()) > 1 / (1 + policy.exit):
        return found(())
    earlier = relative_slowness(replace(problem, seen=before), expected) if before is not None else None
    then = None if earlier is None else _either_way(earlier)
    return found(flagged(_either_way(ratio), then, policy, ownership.drifted))


def expected_seconds(ownership: Ownership, problem: ReshardProblem) -> Array:
    """Return the seconds for an even share that the shares were made for: [e].

    Of the first shares only ratios are known: they are scaled so that the upper quartile of speed is as expected.
    """
    expected: Array = np.asarray(ownership.slowness or (1.0,) * problem.unit_plan.ranks)
    if ownership.moved_at is not None or not ownership.relative:
        return expected
    scale = np.sort(problem.even_seconds / expected)[len(expected) // 4]
    scaled: Array = expected * scale
    return scaled


def relative_slowness(problem: ReshardProblem, expected: Array) -> Array:
    """Return each rank's seconds for an even share over the expected ones, less what all have in common: [e]."""
    ratio = problem.even_seconds / expected
    ordered = np.sort(ratio)
    low, high = ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]
    common = float(np.clip(1.0, low, high))
    return ratio / common if common > 0 else np.ones_like(ratio)


def _either_way(ratio: Array) -> Array:
    """Return the factor of change, slower or faster: [e], >= 1."""
    return np.maximum(ratio, np.divide(1.0, ratio, out=np.ones_like(ratio), where=ratio > 0))
