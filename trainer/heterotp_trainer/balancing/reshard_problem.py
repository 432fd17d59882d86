"""The case for other shares: the time of each rank over the units that it owns (docs/algorithms.md, RESHARD).

FFN, attention and vocabulary each end in a barrier of their own. Shapes: e ranks, P points of a curve.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from heterotp_trainer.balancing.history import Observation
from heterotp_trainer.plans.arrays import Array, interpolated, total
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.grains import ROUNDING
from heterotp_trainer.plans.unit_plan import FAMILIES, Family, UnitPlan

Counts = Mapping[Family, Sequence[int]]  # units by rank


@dataclass(frozen=True)
class Times:
    """Seconds of each rank over its units of one family: points joined by lines, [e, P] each."""

    units: Array
    seconds: Array

    def at(self, counts: Sequence[int] | Array) -> Array:
        """Return the seconds of these units of each rank: [e] -> [e]."""
        return interpolated(self.units, self.seconds, np.asarray(counts, dtype=np.float64))

    def within(self, seconds: float) -> Array:
        """Return how many units each rank computes within the seconds: [e]."""
        found = interpolated(self.seconds, self.units, np.full(len(self.units), seconds))
        return np.where(seconds > 0, found, 0.0)


@dataclass(frozen=True)
class ReshardProblem:
    """What shares are decided on: measured times of an iteration, and the shares in force."""

    costs: Costs
    seen: Observation
    unit_plan: UnitPlan

    @cached_property
    def pace(self) -> Array:
        """Seconds of products over those at calibration: [e]; a rank without measured work counts as usual."""
        seen, whole = self.seen, self.costs.tables.full
        by_work = np.divide(seen.full, whole, out=np.zeros_like(whole), where=whole > 0)
        working = np.sort(by_work[(by_work > 0) & (seen.pace <= 0)])
        # activation recomputation makes full seconds per call too small on ranks that work: scale probed ratios alike
        common = working[len(working) // 4] if len(working) else 1.0
        found = np.where(seen.pace > 0, seen.pace * common, by_work)
        return np.where(found > 0, found, common)

    @cached_property
    def even_seconds(self) -> Array:
        """Seconds of the products of an even share: a rank's slowness, independent of the shares in force: [e]."""
        plan, seconds = self.unit_plan, np.zeros(self.unit_plan.ranks)
        for family in self.families:
            even = np.full(plan.ranks, plan.total(family) / plan.ranks)
            seconds = seconds + Times(*family_curve(self.costs, family)).at(even)
        return self.pace * seconds

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """The families that have products."""
        return tuple(f for f in FAMILIES if any(linears.family == f for linears in self.costs.classes))

    @cached_property
    def times(self) -> dict[Family, Times]:
        """Each rank's seconds over its units: products and other work that moves with the units."""
        return {family: self._times(family) for family in self.families}

    def _times(self, family: Family) -> Times:
        counts = np.asarray(self.unit_plan.counts(family), dtype=np.float64)
        each = self._unit_seconds(self.seen.unit_of(family), counts)
        return family_times(self.costs, self.pace, each, family)

    def _unit_seconds(self, spent: Array, counts: Array) -> Array:
        """Return the seconds of one unit beside its products: [e]; spent: of all units, counts: units, [e] each.

        Part of this time does not depend on the number of units, so that seconds per unit of a rank with few units come
        out too high: they are bounded by the median of the other ranks times the rank's relative slowness.
        """
        each = np.divide(spent, counts, out=np.zeros_like(spent), where=counts > 0)
        many = 2 * counts * len(counts) >= total(counts)
        typical, pace = (np.sort(values[many])[int(many.sum()) // 2] for values in (each, self.pace))
        most = typical * np.maximum(1.0, self.pace / pace)
        return np.where(many, each, np.where(counts > 0, np.minimum(each, most), most))

    @cached_property
    def imbalance(self) -> float:
        """By how much the slowest ranks exceed the fluid limit, all families added, relative to the limit."""
        counts = {family: np.asarray(self.unit_plan.counts(family), dtype=np.float64) for family in self.families}
        late = sum(float(self.times[family].at(counts[family]).max()) for family in self.families)
        return late / self.fluid - 1 if self.fluid else 0.0

    @cached_property
    def fluid(self) -> float:
        """Seconds of products and other work of units with fractional shares: its part of the fluid limit."""
        limit = 0.0
        for family in self.families:
            counts = np.asarray(self.unit_plan.counts(family), dtype=np.float64)
            seconds = self.times[family].at(counts)
            speed = np.divide(counts, seconds, out=np.zeros_like(seconds), where=seconds > 0)
            limit += total(counts) / total(speed) if speed.any() else 0.0
        return limit

    def seconds(self, counts: Counts) -> float:
        """Return the seconds of an iteration without its collectives: each family waits for its slowest rank."""
        last = sum(float(self.times[family].at(counts[family]).max()) for family in self.families)
        return last + float(self.seen.fixed.max())

    def seen_under(self, after: UnitPlan) -> Observation:
        """Return the observation as it would have been under another unit plan."""
        full = self.pace * self.costs.owned_by(after).tables.full
        heads, ffn, vocab = (_scaled(self.seen, self.unit_plan, after, family) for family in FAMILIES)
        unit, seen = heads + ffn + vocab, self.seen.with_full(full)  # where units move, nothing stays reduced
        return replace(seen, unit=unit, attention=heads, vocabulary=vocab, pace=self.pace)

    def lost_seconds(self, seen: Observation, target_seconds: float) -> float:
        """Return by how many seconds one iteration under the shares in force exceeded the target."""
        problem = ReshardProblem(self.costs, seen, self.unit_plan)
        return max(0.0, problem.seconds(counts_of(self.unit_plan)) - target_seconds)


def _scaled(seen: Observation, before: UnitPlan, after: UnitPlan, family: Family) -> Array:
    """Return the unit seconds of a family under another plan: [e]; 0 for a rank that owned no unit."""
    old, new = (np.asarray(plan.counts(family), dtype=np.float64) for plan in (before, after))
    return seen.unit_of(family) * np.divide(new, old, out=np.zeros_like(old), where=old > 0)


def counts_of(plan: UnitPlan) -> Counts:
    """Return the units of each family by rank."""
    return {family: plan.counts(family) for family in FAMILIES}


def family_times(costs: Costs, pace: Array, unit_seconds: Array, family: Family) -> Times:
    """Return pace x t(units) by the measured curves + unit_seconds x units, of each rank.

    pace: seconds of products over those at calibration, [e]; unit_seconds: of one unit beside its products, [e].
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
    """Return the points without those that repeat the one before on every rank: [e, P] -> [e, P']."""
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
