"""RESHARD: how many units each rank should own (algorithms, section 5). FFN and attention each have a barrier of
their own, so each is balanced on its own.

Shapes: e ranks, P points of a curve.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from heterotp_api.policy import Reshard

from heterotp_trainer.balancing.history import Observation
from heterotp_trainer.plans.arrays import Array, interpolated, total
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.grains import ROUNDING, grain_for
from heterotp_trainer.plans.unit_plan import FAMILIES, Family, UnitPlan

PRECISION = 1e-3  # of the shortest time, relative
EXACT = 0.02  # medians of a window tell speeds no better than this
NEAR = 0.01  # plans within this of the fastest are as good: of those the one that moves least is taken
Counts = Mapping[Family, Sequence[int]]  # units by rank


@dataclass(frozen=True)
class Times:
    """Seconds of each rank over the units of one family that it owns: lines through points, [e, P] each."""

    units: Array
    seconds: Array

    def at(self, counts: Sequence[int] | Array) -> Array:
        """Return the seconds of so many units of each rank: [e]."""
        return interpolated(self.units, self.seconds, np.asarray(counts, dtype=np.float64))

    def within(self, seconds: float) -> Array:
        """Return how many units each rank does in so many seconds: [e]."""
        found = interpolated(self.seconds, self.units, np.full(len(self.units), seconds))
        return np.where(seconds > 0, found, 0.0)


@dataclass(frozen=True)
class Bounds:
    """Blocks of `grain` units that each rank may own at least and at most: [e]."""

    grain: int
    least: Array
    most: Array


class Impossible(ValueError):
    """No shares keep all bounds."""


@dataclass(frozen=True)
class ReshardProblem:
    """What is known when shares are decided on: the ranks' speeds as seen, and who owns what now."""

    costs: Costs
    seen: Observation
    shards: UnitPlan

    @cached_property
    def pace(self) -> Array:
        """How many times as long products take as in the pretest, by rank; of a rank without any work nobody knows."""
        seen, whole = self.seen, self.costs.tables.full
        by_work = np.divide(seen.full, whole, out=np.zeros_like(whole), where=whole > 0)
        working = np.sort(by_work[(by_work > 0) & (seen.pace <= 0)])
        # a forward that is done again is counted as a whole call, so that all who work seem fast: who is probed is, too
        common = working[len(working) // 4] if len(working) else 1.0
        found = np.where(seen.pace > 0, seen.pace * common, by_work)
        return np.where(found > 0, found, common)

    @cached_property
    def even_seconds(self) -> Array:
        """Seconds of the products of an even share, by rank: what tells speeds apart, whoever owns what. [e]"""
        plan, seconds = self.shards, np.zeros(self.shards.ranks)
        for family in self.families:
            even = np.full(plan.ranks, plan.total(family) / plan.ranks)
            seconds = seconds + Times(*family_curve(self.costs, family)).at(even)
        return self.pace * seconds

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """The families that there are products of."""
        return tuple(f for f in FAMILIES if any(linears.family == f for linears in self.costs.classes))

    @cached_property
    def times(self) -> "dict[Family, Times]":
        """Each rank's seconds over the units that it owns: products and what else moves with them."""
        return {family: self._times(family) for family in self.families}

    def _times(self, family: Family) -> "Times":
        counts = np.asarray(self.shards.counts(family), dtype=np.float64)
        spent = self.seen.attention if family == "heads" else self.seen.unit - self.seen.attention
        return family_times(self.costs, self.pace, self._unit_seconds(spent, counts), family)

    def _unit_seconds(self, spent: Array, counts: Array) -> Array:
        """Return what one unit takes beside its products, by rank: [e].

        Part of it is the same for few units as for many: who has few would seem to need long for more. Of such a rank
        it is at most what others need, times how much slower it is than they are.
        """
        each = np.divide(spent, counts, out=np.zeros_like(spent), where=counts > 0)
        many = 2 * counts * len(counts) >= total(counts)
        typical, pace = (np.sort(values[many])[int(many.sum()) // 2] for values in (each, self.pace))
        most = typical * np.maximum(1.0, self.pace / pace)
        return np.where(many, each, np.where(counts > 0, np.minimum(each, most), most))

    @cached_property
    def imbalance(self) -> float:
        """By how much the families' last ranks are later than all would be if units could be divided at will."""
        counts = {family: np.asarray(self.shards.counts(family), dtype=np.float64) for family in self.families}
        late = sum(float(self.times[family].at(counts[family]).max()) for family in self.families)
        return late / self.fluid - 1 if self.fluid else 0.0

    @cached_property
    def fluid(self) -> float:
        """Seconds of products and what moves with them, if units could be divided at will: the fluid limit's part."""
        limit = 0.0
        for family in self.families:
            counts = np.asarray(self.shards.counts(family), dtype=np.float64)
            seconds = self.times[family].at(counts)
            speed = np.divide(counts, seconds, out=np.zeros_like(seconds), where=seconds > 0)
            limit += total(counts) / total(speed) if speed.any() else 0.0
        return limit

    def seconds(self, counts: Counts) -> float:
        """Return what an iteration takes beside its collectives: each family waits for the last rank."""
        last = sum(float(self.times[family].at(counts[family]).max()) for family in self.families)
        return last + float(self.seen.fixed.max())

    def seen_under(self, after: UnitPlan) -> Observation:
        """Return what would have been seen if others had owned the units."""
        full = self.pace * self.costs.owned_by(after).tables.full
        parts = [_scaled(self.seen, self.shards, after, family) for family in FAMILIES]
        return replace(self.seen, full=full, unit=parts[0] + parts[1], attention=parts[0], pace=self.pace)

    def lost(self, seen: Observation, target_seconds: float) -> float:
        """Return what one iteration under the shares in force took longer than the target takes."""
        problem = ReshardProblem(self.costs, seen, self.shards)
        return max(0.0, problem.seconds({f: self.shards.counts(f) for f in FAMILIES}) - target_seconds)


def _scaled(seen: Observation, before: UnitPlan, after: UnitPlan, family: Family) -> Array:
    """Return the unit seconds of a family as other counts would have them; of who had none nobody knows."""
    old, new = (np.asarray(plan.counts(family), dtype=np.float64) for plan in (before, after))
    spent = seen.attention if family == "heads" else seen.unit - seen.attention
    return spent * np.divide(new, old, out=np.zeros_like(old), where=old > 0)


def target(problem: ReshardProblem, settings: Reshard, home: UnitPlan | None = None) -> Counts:
    """Return the units that each rank should own: those of the fastest shares, or the first ones (home), or even ones
    where these are as fast by what speeds are known to.

    Raises Impossible where minUnits or memoryLimitBytes leave no shares.
    """
    current: Counts = {family: problem.shards.counts(family) for family in FAMILIES}
    found = dict(current)
    for family in problem.families:
        bounds = _bounds(problem, settings, family)
        found[family] = balanced(problem.times[family], bounds, problem.shards.total(family), current[family])
    even = UnitPlan.even(problem.shards.ranks, problem.shards.total("heads"), problem.shards.total("ffn"))
    for plan in (home, even) if home is not None else (even,):
        simple: Counts = {family: plan.counts(family) for family in FAMILIES}
        allowed = not settings.evict and _within_limits(problem, settings, simple)
        if allowed and problem.seconds(simple) <= problem.seconds(found) * (1 + EXACT):
            return simple
    return found


def keeps_limits(problem: ReshardProblem, settings: Reshard) -> bool:
    """Return whether the shares in force keep memoryLimitBytes, and minUnits where the policy gives it."""
    return _within_limits(problem, settings, {family: problem.shards.counts(family) for family in FAMILIES})


def _within_limits(problem: ReshardProblem, settings: Reshard, counts: Counts) -> bool:
    for family in problem.families:
        bounds, owned = _bounds(problem, settings, family), np.asarray(counts[family], dtype=np.float64)
        if (owned > bounds.most * bounds.grain).any():
            return False
        if settings.min_units is not None and (owned < bounds.least * bounds.grain).any():
            return False
    return True


def _bounds(problem: ReshardProblem, settings: Reshard, family: Family) -> "Bounds":
    units, ranks = problem.shards.total(family), problem.shards.ranks
    grain = grain_for(settings.grain, max(problem.costs.grains), units // ranks) if family == "ffn" else 1
    least = 0
    if family == "ffn":  # so that a rank's speed stays visible
        least = settings.min_units if settings.min_units is not None else min(grain, units // ranks)
    limit = settings.memory_limit_bytes
    most = None
    if limit is not None:  # each family gets its part of it
        unit_move = problem.costs.unit_move
        whole = sum(problem.shards.total(each) * unit_move.unit_bytes(each) for each in FAMILIES)
        most = [limit / whole * units if whole else float(units)] * ranks
    return bounds_of(units, grain, ranks, least, settings.evict or (), most)


def move_seconds(costs: Costs, before: Counts, after: Counts) -> float:
    """Return what moving the units takes: the longest queue of bytes at any rank, by the measured link."""
    unit_move, nothing = costs.unit_move, np.zeros(costs.ranks)
    out, into = nothing, nothing
    for family in FAMILIES:
        more = (np.asarray(after[family], dtype=np.float64) - np.asarray(before[family])) * unit_move.unit_bytes(family)
        out, into = out + np.maximum(-more, 0.0), into + np.maximum(more, 0.0)
    longest = float(np.maximum(out, into).max())
    messages = sum(linears.calls for linears in costs.classes) if longest else 0
    return (messages * costs.link.piece.fixed + longest * costs.link.piece.slope) * unit_move.correction


def family_times(costs: Costs, pace: Array, unit_seconds: Array, family: Family) -> Times:
    """Return pace x t(units) by the measured curves + unit_seconds x units, for each rank.

    pace: how many times as long products take as in the pretest; unit_seconds: other work that moves with a unit.
    """
    units, seconds = family_curve(costs, family)
    return Times(units, pace[:, None] * seconds + unit_seconds[:, None] * units)


def family_curve(costs: Costs, family: Family) -> tuple[Array, Array]:
    """Return units and seconds of a family's products by the measured curves: [e, P] each."""
    if family not in costs.by_family:
        costs.by_family[family] = _added_curves(costs, family)
    return costs.by_family[family]


def _added_curves(costs: Costs, family: Family) -> tuple[Array, Array]:
    chosen = [k for k, linears in enumerate(costs.classes) if linears.family == family]
    scaled = {k: _in_units(costs, k) for k in chosen}
    points = [np.zeros((costs.ranks, 1)), *(scaled[k] for k in chosen)]
    units = _without_repeats(np.sort(np.concatenate(points, axis=1), axis=1))
    seconds = np.zeros_like(units)
    for k in chosen:
        for p in range(units.shape[1]):
            seconds[:, p] += costs.classes[k].calls * interpolated(scaled[k], costs.tables.ys[k], units[:, p])
    return units, seconds


def _without_repeats(units: Array) -> Array:
    """Return the points without those that repeat the one before on every rank."""
    fresh = (np.diff(units, axis=1) > ROUNDING * units[:, 1:]).any(axis=0)
    return units[:, np.concatenate([[True], fresh])]


def _in_units(costs: Costs, k: int) -> Array:
    """Return the measured points of a class of linears in units owned: [e, P]."""
    linears = costs.classes[k]
    columns = np.array([_padded(curves[k].columns, costs.tables.xs.shape[-1]) for curves in costs.curves])
    if linears.parallel == "row":
        return columns / linears.per_unit
    measured = np.array([float(curves[k].outputs or 0) for curves in costs.curves])
    outputs = np.where(measured > 0, measured, costs.tables.outputs[k])
    in_units: Array = columns * (outputs / (costs.tables.columns[k] * linears.per_unit))[:, None]
    return in_units


def _padded(values: Sequence[float], points: int) -> list[float]:
    return [*values, *[values[-1]] * (points - len(values))]


def bounds_of(
    total: int,
    grain: int,
    ranks: int,
    least: int,
    evicted: Collection[int] = (),
    most: Sequence[float] | None = None,
) -> Bounds:
    """Return the bounds of a family, in blocks that divide its units; least and most are in units."""
    whole = math.gcd(total, grain)
    low, high = np.full(ranks, float(-(-least // whole))), np.full(ranks, float(total // whole))
    if most is not None:
        high = np.minimum(high, np.floor(np.asarray(most) / whole))
    low[list(evicted)] = high[list(evicted)] = 0.0
    return Bounds(whole, np.minimum(low, high), high)


def balanced(times: Times, bounds: Bounds, total: int, current: Sequence[int]) -> tuple[int, ...]:
    """Return units per rank, the fastest within NEAR, and of those what moves fewest from the current owners.

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
    return tuple((counts * bounds.grain).astype(int).tolist())


def _blocks_within(times: Times, bounds: Bounds, seconds: float) -> Array:
    found = np.floor(times.within(seconds) / bounds.grain + ROUNDING)
    return np.clip(found, bounds.least, bounds.most)


def _lowest(times: Times, bounds: Bounds, blocks: int, least: Array, most: Array) -> float:
    """Return the seconds within which all blocks can be done, each rank doing from least to most of them."""

    def enough(seconds: float) -> bool:
        return bool(np.clip(_blocks_within(times, bounds, seconds), least, most).sum() >= blocks)

    low, high = 0.0, float(times.at(np.full(len(least), -(-blocks // len(least)) * float(bounds.grain))).max())
    if not high > 0:
        raise Impossible
    while not enough(high):
        low, high = high, 2 * high
        if not math.isfinite(high):  # by their curves all the units that they may own take some ranks no time
            raise Impossible
    while high - low > high * PRECISION:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return max(high, float(times.at(least * bounds.grain).max()))  # sooner is nobody done who must do so much


def _trimmed(times: Times, bounds: Bounds, counts: Array, least: Array, blocks: int) -> Array:
    """Return the counts without what is too much in all, a block each from those who would be done last."""
    counts = counts.copy()
    while (extra := int(counts.sum()) - blocks) > 0:
        seconds = np.where(counts > least, times.at(counts * bounds.grain), -1.0)
        last = np.argsort(-seconds, kind="stable")[:extra]
        counts[last[seconds[last] >= 0]] -= 1
    return counts
