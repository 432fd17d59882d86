"""What an iteration would take under a plan: the price by which plans are compared (eq. 2 and 3 of the paper)."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from heterotp_trainer.balancing.arrays import Array, Relieved, added
from heterotp_trainer.balancing.history import Observation
from heterotp_trainer.balancing.work import Costs, Line, Primitive, Reliefs, WorkPlan

MOST_CORRECTION = 2.0  # of the price of transfers by one live sample
Amount = TypeVar("Amount", float, Array)
Receivers = Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Transfer(Generic[Amount]):
    """Elements that one sender's migration moves in one call, in `pieces` transfers, one after the other."""

    how: str  # broadcast, reduce (summed on the way back) or piece
    elements: Amount
    pieces: Amount | int = 1


def transfers(
    parallel: str, rows: int, outputs: Amount, columns: Amount, receivers: Amount, primitive: Primitive
) -> Iterator[Transfer[Amount]]:
    """Yield the transfers of one forward and one backward call that migrates columns to so many receivers.

    Column-parallel: W[:, C] and dY go out, Y and dW[:, C] come back. Row-parallel: X[:, C] and W[:, C] go out,
    dX[:, C] and dW[:, C] come back. What flows into an all-reduce anyway is merged there by broadcastReduce and
    comes back by itself in scatterGather (dX of a column-parallel, Y of a row-parallel linear).
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


def transfer_seconds(costs: Costs, reliefs: Reliefs, receivers: int, primitive: Primitive) -> float:
    """Return Phi1: the seconds an iteration that the transfers of all senders take."""
    relieved = Relieved.of(reliefs, len(costs.classes), costs.ranks)
    terms: list[float] = []
    for k, linears in enumerate(costs.classes):
        senders = np.flatnonzero(relieved.migrated[k])
        columns, outputs = relieved.migrated[k, senders], costs.tables.outputs[k, senders]
        count = np.minimum(float(receivers), columns)
        for each in transfers(linears.parallel, linears.rows, outputs, columns, count, primitive):
            line: Line = getattr(costs.link, each.how)
            seconds = line.fixed * each.pieces + line.slope * each.elements * costs.item_bytes
            terms += (seconds * linears.calls).tolist()
    return math.fsum(terms)


def received_columns(costs: Costs, reliefs: Reliefs, receivers: Receivers) -> Array:
    """Return the columns that each rank computes for others, scaled to its own outputs (the most, if it has none).

    By weight, not yet rounded to whole columns: [K, e].
    """
    relieved = Relieved.of(reliefs, len(costs.classes), costs.ranks)
    outputs = costs.tables.outputs
    work = [math.fsum(row) for row in (relieved.migrated * outputs).tolist()]
    own = np.where(outputs > 0, outputs, outputs.max(axis=1, keepdims=True, initial=0.0))
    parts = np.array(work).reshape(-1, 1) * weights_of(receivers, costs.ranks)
    return np.divide(parts, own, out=np.zeros_like(parts), where=own > 0)


def weights_of(receivers: Receivers, ranks: int) -> Array:
    """Return each rank's share, 0..1, of what migrates: [e]."""
    weights = np.zeros(ranks)
    weights[[rank for rank, _ in receivers]] = [weight for _, weight in receivers]
    whole = math.fsum(weights.tolist())
    return weights / whole if whole else weights


def executed_seconds(costs: Costs, reliefs: Reliefs, received: Array | None = None) -> Array:
    """Return what each rank's products take by its curves under a plan; received: as received_columns. [e]"""
    relieved = Relieved.of(reliefs, len(costs.classes), costs.ranks)
    tables = costs.tables
    terms = tables.seconds(tables.columns - relieved.pruned - relieved.migrated)
    if received is not None:
        strange = (tables.outputs == 0) | (tables.columns == 0)  # a rank without such work goes by the slowest other
        theirs = tables.seconds(received)
        for k, rank in zip(*np.nonzero(strange & (received > 0)), strict=True):
            theirs[k, rank] = max(curves[k].at(float(received[k, rank])) for curves in costs.curves)
        terms = terms + theirs
    return added(tables.calls * terms, costs.ranks)


def iteration_seconds(
    costs: Costs,
    seen: Observation,
    reliefs: Reliefs,
    receivers: Receivers = (),
    primitive: Primitive = "broadcastReduce",
    base_wait: float = 0.0,
) -> float:
    """Return max_i T_i under the plan + transfers + the least that an iteration waits in its own collectives.

    M_i = M^_i t(executed) / t(full); a relieved rank pays allocation and extraction (Omega1, Omega2) on top.
    """
    relieved = Relieved.of(reliefs, len(costs.classes), costs.ranks)
    if not relieved:
        return float(seen.total.max()) + base_wait
    received = received_columns(costs, relieved, receivers) if relieved.migrates else None
    whole = costs.tables.full
    slower = np.divide(seen.full, whole, out=np.ones(costs.ranks), where=whole > 0)
    changed = executed_seconds(costs, relieved, received) * slower - seen.full
    touched = (relieved.pruned + relieved.migrated > 0).any(axis=0)
    if received is not None:
        touched |= (received > 0).any(axis=0)
    totals = seen.total + np.where(touched, changed, 0.0) + _resizing(costs, relieved)
    moved = transfer_seconds(costs, relieved, len(receivers), primitive) if relieved.migrates else 0.0
    return float(totals.max()) + moved + base_wait


def refreshed(costs: Costs, plan: WorkPlan, measured_seconds: float) -> Costs:
    """Return costs whose transfers explain what an iteration under the plan took; at most MOST_CORRECTION at once."""
    moved = transfer_seconds(costs, plan.taken, len(plan.receivers), plan.primitive)
    if not moved or plan.predicted_seconds is None:
        return costs
    factor = 1 + (measured_seconds - plan.predicted_seconds) / moved
    factor = min(MOST_CORRECTION, max(1 / MOST_CORRECTION, factor))
    return replace(costs, link=costs.link.scaled(factor))


def _resizing(costs: Costs, relieved: Relieved) -> Array:
    """Return what cutting each rank's matrices costs, whoever computes the rest or nobody: [e]."""
    gone = shares(costs, relieved.pruned + relieved.migrated)
    line = costs.extraction
    return np.where(gone > 0, costs.allocation + line.fixed + line.slope * gone, 0.0)


def shares(costs: Costs, columns: Array) -> Array:
    """Return which share of each rank's work, by operations, these columns [K, e] are: [e]."""
    tables = costs.tables
    gone, whole = (added(tables.operations * each, costs.ranks) for each in (columns, tables.columns))
    return np.divide(gone, whole, out=np.zeros(costs.ranks), where=whole > 0)


def pruned_share(costs: Costs, reliefs: Reliefs) -> float:
    """Return the share, 0..1, of all ranks' work that is deleted."""
    relieved = Relieved.of(reliefs, len(costs.classes), costs.ranks)
    operations = costs.tables.operations
    gone, whole = (math.fsum((operations * each).ravel().tolist()) for each in (relieved.pruned, costs.tables.columns))
    return gone / whole if whole else 0.0
