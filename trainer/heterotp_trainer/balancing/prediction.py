"""The predicted seconds of an iteration under a plan, by which plans are compared (eq. 2 and 3 of the paper)."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
from heterotp_api.strategies import Primitive

from heterotp_trainer.balancing.history import Observation
from heterotp_trainer.balancing.reshard_problem import Counts
from heterotp_trainer.plans.arrays import Array, added, at, total
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.linears import Line
from heterotp_trainer.plans.unit_plan import FAMILIES
from heterotp_trainer.plans.work_plan import WorkPlan
from heterotp_trainer.plans.work_reduction import Reductions, WorkReductions

MOST_CORRECTION = 2.0  # largest factor by which one live sample changes the price of transfers
Amount = TypeVar("Amount", float, Array)
Receivers = Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Transfer(Generic[Amount]):
    """Elements that one sender's migration moves in one call, in `pieces` successive transfers."""

    how: str  # field of Link: broadcast, reduce (a sum that comes back) or piece
    elements: Amount
    pieces: Amount | int = 1


def transfers(
    parallel: str, rows: int, outputs: Amount, columns: Amount, receivers: Amount, primitive: Primitive
) -> Iterator[Transfer[Amount]]:
    """Yield the transfers of one call (forward and backward) that migrates columns C to this many receivers.

    Column-parallel: W[:, C] and dY go out, Y and dW[:, C] come back. Row-parallel: X[:, C] and W[:, C] go out,
    dX[:, C] and dW[:, C] come back. dX of a column-parallel and Y of a row-parallel linear are summed by an
    all-reduce: broadcastReduce adds them there, scatterGather returns them.
    """
    merged = primitive == "broadcastReduce"
    out, times = ("broadcast", 1) if merged else ("piece", receivers)
    if parallel == "column":
        yield Transfer(out, outputs * columns, times)
        yield Transfer("reduce" if merged else "piece", rows * outputs * times, times)  # Y back
        yield Transfer(out, rows * outputs * times, times)  # dY out
        yield Transfer("piece", outputs * columns, receivers)
        if not merged:
            yield Transfer("piece", rows * columns, receivers)
        return
    yield Transfer(out, (rows + outputs) * columns, times)
    yield Transfer("piece", (rows + outputs) * columns, receivers)
    if not merged:
        yield Transfer("piece", rows * outputs * receivers, receivers)


def transfer_seconds(costs: Costs, reductions: Reductions, receivers: int, primitive: Primitive) -> float:
    """Return Phi1: the seconds of all senders' transfers in one iteration."""
    reduced = WorkReductions.of(reductions, len(costs.classes), costs.ranks)
    seconds = 0.0
    for k, linears in enumerate(costs.classes):
        senders = np.flatnonzero(reduced.migrated[k])
        columns, outputs = reduced.migrated[k, senders], costs.tables.outputs[k, senders]
        count, moved = np.minimum(float(receivers), columns), np.zeros(len(senders))
        for each in transfers(linears.parallel, linears.rows, outputs, columns, count, primitive):
            line: Line = getattr(costs.link, each.how)
            moved += line.fixed * each.pieces + line.slope * each.elements * costs.item_bytes
        seconds += linears.calls * total(moved)
    return seconds


def received_columns(costs: Costs, reductions: Reductions, receivers: Receivers) -> Array:
    """Return the columns that each rank receives, scaled to its own outputs: [K, e].

    In proportion to weights, not rounded to whole columns; a rank without outputs counts with the largest shard.
    """
    reduced = WorkReductions.of(reductions, len(costs.classes), costs.ranks)
    outputs, taking, senders = costs.tables.outputs, costs.tables.taking, reduced.ranks
    work = [total(row) for row in reduced.migrated[:, senders] * outputs[:, senders]]
    parts = np.array(work).reshape(-1, 1) * weights_of(tuple(receivers), costs.ranks)
    return np.divide(parts, taking, out=np.zeros_like(parts), where=taking > 0)


@functools.lru_cache(maxsize=4)  # one decision predicts many plans with the same receivers
def weights_of(receivers: tuple[tuple[int, float], ...], ranks: int) -> Array:
    """Return each rank's share, 0..1, of the migrated work: [e]."""
    weights = np.zeros(ranks)
    weights[[rank for rank, _ in receivers]] = [weight for _, weight in receivers]
    whole = total(weights)
    return weights / whole if whole else weights


def kept_seconds(costs: Costs, reductions: Reductions) -> Array:
    """Return the seconds of the products that each rank keeps, by its curves: [e]."""
    reduced = WorkReductions.of(reductions, len(costs.classes), costs.ranks)
    tables = costs.tables
    kept = tables.seconds(tables.columns - reduced.pruned - reduced.migrated)
    return added(tables.calls * kept, costs.ranks)


def received_seconds(costs: Costs, reductions: Reductions, receivers: Receivers) -> Array:
    """Return the seconds of the products that each rank receives, by its curves: [e]."""
    tables, received = costs.tables, received_columns(costs, reductions, receivers)
    theirs = tables.seconds(received)
    unmeasured = (tables.outputs == 0) | (tables.columns == 0)  # the slowest curve counts for a rank without one
    for k, rank in zip(*np.nonzero(unmeasured & (received > 0)), strict=True):
        theirs[k, rank] = at(tables.xs[k], tables.ys[k], np.full(costs.ranks, received[k, rank])).max()
    return added(tables.calls * theirs, costs.ranks)


def own_seconds(costs: Costs, seen: Observation, reduced: WorkReductions) -> Array:
    """Return T of each rank less its reductions, without received work: [e].

    M_i = M^_i t(kept) / t(full); a rank with reductions pays allocation and extraction (Omega1, Omega2) on top.
    """
    less = kept_seconds(costs, reduced) * slower(costs, seen) - seen.full
    gone = shares(costs, reduced.pruned + reduced.migrated)
    line = costs.extraction
    return seen.total + np.where(gone > 0, less + costs.allocation + line.fixed + line.slope * gone, 0.0)


def slower(costs: Costs, seen: Observation) -> Array:
    """Return each rank's seconds of products over those at calibration: [e]."""
    whole = costs.tables.full
    return np.divide(seen.full, whole, out=np.ones(costs.ranks), where=whole > 0)


def iteration_seconds(
    costs: Costs,
    seen: Observation,
    reductions: Reductions,
    receivers: Receivers = (),
    primitive: Primitive = "broadcastReduce",
    base_wait: float = 0.0,
    own: Array | None = None,
) -> float:
    """Return max_i T_i under the reductions + transfers + base_wait, the least wait in the iteration's collectives.

    own: the result of own_seconds, for callers that predict many plans with the same sum of pruned and migrated.
    """
    reduced = WorkReductions.of(reductions, len(costs.classes), costs.ranks)
    if not reduced:
        return float(seen.total.max()) + base_wait
    totals = own_seconds(costs, seen, reduced) if own is None else own
    if not reduced.migrates:
        return float(totals.max()) + base_wait
    totals = totals + received_seconds(costs, reduced, receivers) * slower(costs, seen)
    return float(totals.max()) + transfer_seconds(costs, reduced, len(receivers), primitive) + base_wait


def refreshed(costs: Costs, plan: WorkPlan, measured_seconds: float) -> Costs:
    """Return costs whose transfers explain an iteration's measured seconds under the plan, within MOST_CORRECTION."""
    moved = transfer_seconds(costs, plan.reductions_by_rank, len(plan.receivers), plan.primitive)
    if not moved or plan.predicted_seconds is None:
        return costs
    factor = 1 + (measured_seconds - plan.predicted_seconds) / moved
    factor = min(MOST_CORRECTION, max(1 / MOST_CORRECTION, factor))
    return replace(costs, link=costs.link.scaled(factor))


def shares(costs: Costs, columns: Array) -> Array:
    """Return the share, 0..1, of each rank's operations that are in these columns: [K, e] -> [e]."""
    tables = costs.tables
    gone, whole = (added(tables.operations * each, costs.ranks) for each in (columns, tables.columns))
    return np.divide(gone, whole, out=np.zeros(costs.ranks), where=whole > 0)


def pruned_share(costs: Costs, reductions: Reductions) -> float:
    """Return the share, 0..1, of all ranks' work that is deleted."""
    reduced = WorkReductions.of(reductions, len(costs.classes), costs.ranks)
    operations = costs.tables.operations
    gone, whole = (total(operations * each) for each in (reduced.pruned, costs.tables.columns))
    return gone / whole if whole else 0.0


def move_seconds(costs: Costs, before: Counts, after: Counts) -> float:
    """Return the seconds of a move: the most bytes that any rank sends or receives, by the measured link."""
    unit_move = costs.unit_move
    out = into = np.zeros(costs.ranks)
    for family in FAMILIES:
        more = (np.asarray(after[family], dtype=np.float64) - np.asarray(before[family])) * unit_move.unit_bytes(family)
        out, into = out + np.maximum(-more, 0.0), into + np.maximum(more, 0.0)
    longest = float(np.maximum(out, into).max())
    messages = sum(linears.calls for linears in costs.classes) if longest else 0
    return (messages * costs.link.piece.fixed + longest * costs.link.piece.slope) * unit_move.correction


@dataclass(frozen=True)
class Price:
    """What a candidate comes to: seconds of an iteration with no reductions, and with these (None: not measured yet).

    Both contain what a measured iteration contains: `aside` are its seconds of data and control.

    ranks: those with reductions, ascending; pruned, migrated: shares of each rank's work, [e]; deleted: of all work.
    """

    untouched: float | None
    predicted: float | None
    ranks: tuple[int, ...]
    pruned: Array
    migrated: Array
    deleted: float
    aside: float = 0.0

    def beside(self, aside: float) -> "Price":
        """Return the price with these seconds of data and control added."""
        added = [None if seconds is None else seconds + aside for seconds in (self.untouched, self.predicted)]
        return replace(self, untouched=added[0], predicted=added[1], aside=self.aside + aside)


def price_of(
    costs: Costs,
    seen: Observation | None,
    reductions: Reductions,
    receivers: Receivers,
    primitive: Primitive,
    base_wait: float,
) -> Price:
    """Return the price of reductions; base_wait: see iteration_seconds."""
    reduced = WorkReductions.of(reductions, len(costs.classes), costs.ranks)
    untouched = predicted = iteration_seconds(costs, seen, {}, base_wait=base_wait) if seen is not None else None
    nothing = np.zeros(costs.ranks)
    if not reduced:
        return Price(untouched, predicted, (), nothing, nothing, 0.0)
    if seen is not None:
        predicted = iteration_seconds(costs, seen, reduced, receivers, primitive, base_wait)
    pruned, migrated = shares(costs, reduced.pruned), shares(costs, reduced.migrated)
    return Price(untouched, predicted, tuple(sorted(reduced)), pruned, migrated, pruned_share(costs, reduced))
