"""How many units each rank should own (docs/algorithms.md, RESHARD); each family is planned on its own."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from heterotp_api.strategy_blocks import Reshard

from heterotp_trainer.balancing.reshard_problem import Counts, ReshardProblem, Times, counts_of
from heterotp_trainer.plans.arrays import Array
from heterotp_trainer.plans.grains import ROUNDING, grain_for
from heterotp_trainer.plans.unit_plan import FAMILIES, Family, UnitPlan

PRECISION = 1e-3  # of the shortest time, relative
NO_TIME = 1e-9  # of a time that suffices: less is none
EXACT = 0.02  # relative accuracy of speeds from medians of a window
NEAR = 0.01  # shares within this of the fastest count as equally fast


@dataclass(frozen=True)
class Bounds:
    """Blocks of `grain` units that each rank may own at least and at most: [e].

    rest: units that fill no block; one rank owns them all.
    """

    grain: int
    least: Array
    most: Array
    rest: int = 0


class Impossible(ValueError):
    """No shares keep all bounds."""


def target(problem: ReshardProblem, settings: Reshard, first: UnitPlan | None = None) -> Counts:
    """Return the units that each rank should own: those of the fastest shares.

    The first shares, else even ones, are preferred where they are as fast within the accuracy of measured speeds.
    Raises Impossible where minUnits or memoryLimitBytes leave no shares.
    """
    current = counts_of(problem.unit_plan)
    found = dict(current)
    for family in problem.families:
        bounds = _bounds(problem, settings, family)
        found[family] = balanced(problem.times[family], bounds, problem.unit_plan.total(family), current[family])
    even = UnitPlan.even(problem.unit_plan.ranks, *map(problem.unit_plan.total, FAMILIES))
    for plan in (first, even) if first is not None else (even,):
        simple = counts_of(plan)
        allowed = not settings.evict and _within_limits(problem, settings, simple)
        if allowed and problem.seconds(simple) <= problem.seconds(found) * (1 + EXACT):
            return simple
    return found


def keeps_limits(problem: ReshardProblem, settings: Reshard) -> bool:
    """Return whether the shares in force keep memoryLimitBytes, and minUnits where the policy gives it."""
    return _within_limits(problem, settings, counts_of(problem.unit_plan))


def _within_limits(problem: ReshardProblem, settings: Reshard, counts: Counts) -> bool:
    for family in problem.families:
        bounds, owned = _bounds(problem, settings, family), np.asarray(counts[family], dtype=np.float64)
        if (owned > bounds.most * bounds.grain + bounds.rest).any():
            return False
        if settings.min_units is not None and (owned < bounds.least * bounds.grain).any():
            return False
    return True


def _bounds(problem: ReshardProblem, settings: Reshard, family: Family) -> Bounds:
    units, ranks = problem.unit_plan.total(family), problem.unit_plan.ranks
    grain = 1 if family == "heads" else grain_for(settings.grain, max(problem.costs.grains), units // ranks)
    least = 0
    if family == "ffn":  # so that the rank's speed can be measured
        least = settings.min_units if settings.min_units is not None else min(grain, units // ranks)
    limit = settings.memory_limit_bytes
    most = None
    if limit is not None:  # each family gets its part of the bytes
        unit_move = problem.costs.unit_move
        whole = sum(problem.unit_plan.total(each) * unit_move.unit_bytes(each) for each in FAMILIES)
        most = [limit / whole * units if whole else float(units)] * ranks
    return bounds_of(units, grain, ranks, least, settings.evict or (), most, divides=family != "vocab")


def bounds_of(
    total: int,
    grain: int,
    ranks: int,
    least: int,
    evicted: Collection[int] = (),
    most: Sequence[float] | None = None,
    *,
    divides: bool = True,
) -> Bounds:
    """Return the bounds of a family in blocks; least and most are given in units.

    divides: blocks divide the units; else they are of `grain` units, also of a vocabulary of an odd number of rows.
    """
    whole = math.gcd(total, grain) if divides else grain
    low, high = np.full(ranks, float(-(-least // whole))), np.full(ranks, float(total // whole))
    if most is not None:
        high = np.minimum(high, np.floor(np.asarray(most) / whole))
    low[list(evicted)] = high[list(evicted)] = 0.0
    return Bounds(whole, np.minimum(low, high), high, total % whole)


def balanced(times: Times, bounds: Bounds, total: int, current: Sequence[int]) -> tuple[int, ...]:
    """Return units per rank: of the shares within NEAR of the fastest those that move fewest units.

    Raises Impossible where the bounds leave no shares that sum to the total.
    """
    blocks = total // bounds.grain
    if bounds.most.sum() < blocks or bounds.least.sum() > blocks:
        raise Impossible
    fastest = _lowest(times, bounds, blocks, bounds.least, bounds.most)
    room = _blocks_within(times, bounds, fastest * (1 + NEAR))
    kept = np.maximum(bounds.least, np.minimum(np.floor(np.asarray(current) / bounds.grain), room))
    if kept.sum() >= blocks:
        counts = _trimmed(times, bounds, kept, bounds.least, blocks)
    else:
        level = _lowest(times, bounds, blocks, kept, room)
        filled = np.clip(_blocks_within(times, bounds, level), kept, room)
        counts = _trimmed(times, bounds, filled, kept, blocks)
    return tuple(_with_rest(times, bounds, counts * bounds.grain).astype(int).tolist())


def _with_rest(times: Times, bounds: Bounds, counts: Array) -> Array:
    """Return the units with those that fill no block, at the rank that finishes soonest with them."""
    if not bounds.rest:
        return counts
    open_ranks = np.flatnonzero(bounds.most > 0)
    if not len(open_ranks):
        raise Impossible
    more = counts + bounds.rest
    soonest = open_ranks[np.argmin(times.at(more)[open_ranks])]
    return np.where(np.arange(len(counts)) == soonest, more, counts)


def _blocks_within(times: Times, bounds: Bounds, seconds: float) -> Array:
    found = np.floor(times.within(seconds) / bounds.grain + ROUNDING)
    return np.clip(found, bounds.least, bounds.most)


def _lowest(times: Times, bounds: Bounds, blocks: int, least: Array, most: Array) -> float:
    """Return the least seconds in which the ranks, each with least to most blocks, compute all blocks."""

    def enough(seconds: float) -> bool:
        return bool(np.clip(_blocks_within(times, bounds, seconds), least, most).sum() >= blocks)

    low, high = 0.0, float(times.at(np.full(len(least), -(-blocks // len(least)) * float(bounds.grain))).max())
    if not high > 0:
        raise Impossible
    while not enough(high):
        low, high = high, 2 * high
        if not math.isfinite(high):  # some curves reach no higher seconds, however many units
            raise Impossible
    negligible = high * NO_TIME
    while high - low > max(high * PRECISION, negligible):  # by some curves all units take no time at all
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return max(high, float(times.at(least * bounds.grain).max()))  # lower bound set by the minimum shares


def _trimmed(times: Times, bounds: Bounds, counts: Array, least: Array, blocks: int) -> Array:
    """Return the counts less the blocks above the total, one each from the ranks that finish last."""
    counts = counts.copy()
    while (extra := int(counts.sum()) - blocks) > 0:
        seconds = np.where(counts > least, times.at(counts * bounds.grain), -1.0)
        last = np.argsort(-seconds, kind="stable")[:extra]
        counts[last[seconds[last] >= 0]] -= 1
    return counts
