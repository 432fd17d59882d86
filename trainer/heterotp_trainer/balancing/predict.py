"""What an iteration would take under a plan: the price by which plans are compared (eq. 2 and 3 of the paper)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from heterotp_trainer.balancing.history import Observation
from heterotp_trainer.balancing.work import Costs, LinearClass, Primitive, Reliefs, Taken, WorkPlan, pieces

MOST_CORRECTION = 2.0  # of the price of transfers by one live sample
Receivers = Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Transfer:
    """Bytes that one sender's migration moves in one call, in `count` pieces; reduce: summed on the way back."""

    how: str  # broadcast, reduce or piece
    elements: int
    count: int = 1


def transfers(linears: LinearClass, sender: int, columns: int, count: int, primitive: Primitive) -> Iterator[Transfer]:
    """Yield the transfers of one forward and one backward call that migrates columns to `count` receivers.

    Column-parallel: W[:, C] and dY go out, Y and dW[:, C] come back. Row-parallel: X[:, C] and W[:, C] go out,
    dX[:, C] and dW[:, C] come back. What flows into an all-reduce anyway is merged there by broadcastReduce and
    comes back by itself in scatterGather (dX of a column-parallel, Y of a row-parallel linear).
    """
    rows, outputs = linears.rows, linears.outputs[sender]
    merged = primitive == "broadcastReduce"
    out = "broadcast" if merged else "piece"
    if linears.parallel == "column":
        yield Transfer(out, outputs * columns, 1 if merged else count)
        whole = 1 if merged else count
        for how in ("reduce" if merged else "piece", out):  # Y back, dY out
            for _ in range(whole):
                yield Transfer(how, rows * outputs)
        yield Transfer("piece", outputs * columns, count)
        if not merged:
            yield Transfer("piece", rows * columns, count)
        return
    yield Transfer(out, (rows + outputs) * columns, 1 if merged else count)
    yield Transfer("piece", (rows + outputs) * columns, count)
    if not merged:
        for _ in range(count):
            yield Transfer("piece", rows * outputs)


def transfer_seconds(costs: Costs, reliefs: Reliefs, receivers: int, primitive: Primitive) -> float:
    """Return Phi1: the seconds an iteration that the transfers of all senders take."""
    total = 0.0
    for sender, columns, linears in _migrating(costs, reliefs):
        for transfer in transfers(linears, sender, columns, min(receivers, columns), primitive):
            line = getattr(costs.link, transfer.how)
            seconds = line.fixed * transfer.count + line.slope * transfer.elements * costs.item_bytes
            total += seconds * linears.calls
    return total


def _migrating(costs: Costs, reliefs: Reliefs) -> Iterator[tuple[int, int, LinearClass]]:
    """Yield sender, columns and class of all that migrates."""
    for sender, classes in reliefs.items():
        for linears, taken in zip(costs.classes, classes, strict=True):
            if taken.migrated:
                yield sender, taken.migrated, linears


def executed_seconds(costs: Costs, rank: int, reliefs: Reliefs, received: Sequence[float] | None = None) -> float:
    """Return what the rank's products take by its curves under a plan; `received`: columns per class, full outputs."""
    taken = reliefs.get(rank)
    total = 0.0
    for k, linears in enumerate(costs.classes):
        own = linears.columns[rank] - (taken[k].pruned + taken[k].migrated if taken else 0)
        total += linears.calls * costs.curves[rank][k].at(own)
        if received is not None and received[k]:
            total += linears.calls * _received_seconds(costs, rank, k, received[k])
    return total


def _received_seconds(costs: Costs, rank: int, k: int, columns: float) -> float:
    """Return the seconds of one call on received columns; a rank without such work of its own goes by the others."""
    if costs.classes[k].outputs[rank] and costs.classes[k].columns[rank]:
        return costs.curves[rank][k].at(columns)
    return max(curves[k].at(columns) for curves in costs.curves)


def received_columns(costs: Costs, reliefs: Reliefs, receivers: Receivers) -> dict[int, list[float]]:
    """Return per receiver and class the columns that it computes for others, scaled to its own outputs."""
    found: dict[int, list[float]] = {rank: [0.0] * len(costs.classes) for rank, _ in receivers}
    for k, linears in enumerate(costs.classes):
        counts = {rank: classes[k].migrated for rank, classes in reliefs.items() if classes[k].migrated}
        for piece in pieces(counts, receivers):
            own = linears.outputs[piece.receiver]
            scale = linears.outputs[piece.sender] / own if own else 1.0
            found[piece.receiver][k] += piece.columns * scale
    return found


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
    migrated = any(taken.migrated for classes in reliefs.values() for taken in classes)
    received = received_columns(costs, reliefs, receivers) if migrated else {}
    totals = seen.total.tolist()
    full = seen.full.tolist()
    for rank in {*reliefs, *received}:
        whole = costs.full_seconds(rank)
        executed = executed_seconds(costs, rank, reliefs, received.get(rank))
        slower = full[rank] / whole if whole else 1.0
        totals[rank] += executed * slower - full[rank] + _resizing(costs, rank, reliefs)
    moved = transfer_seconds(costs, reliefs, len(receivers), primitive) if migrated else 0.0
    return float(max(totals)) + moved + base_wait


def refreshed(costs: Costs, plan: WorkPlan, measured_seconds: float) -> Costs:
    """Return costs whose transfers explain what an iteration under the plan took; at most MOST_CORRECTION at once."""
    moved = transfer_seconds(costs, plan.taken, len(plan.receivers), plan.primitive)
    if not moved or plan.predicted_seconds is None:
        return costs
    factor = 1 + (measured_seconds - plan.predicted_seconds) / moved
    factor = min(MOST_CORRECTION, max(1 / MOST_CORRECTION, factor))
    return replace(costs, link=costs.link.scaled(factor))


def _resizing(costs: Costs, rank: int, reliefs: Reliefs) -> float:
    """Return what cutting the rank's matrices costs, whoever computes the rest or nobody."""
    taken = reliefs.get(rank)
    if not taken:
        return 0.0
    share = share_of(costs, rank, taken, "pruned") + share_of(costs, rank, taken, "migrated")
    return costs.allocation + costs.extraction.at(share)


def share_of(costs: Costs, rank: int, taken: Sequence[Taken], what: str) -> float:
    """Return the share, 0..1, of one rank's work that is `what` (pruned or migrated), by operations."""
    gone = whole = 0.0
    for linears, each in zip(costs.classes, taken, strict=True):
        gone += linears.operations(rank, getattr(each, what))
        whole += linears.operations(rank, linears.columns[rank])
    return gone / whole if whole else 0.0


def pruned_share(costs: Costs, reliefs: Reliefs) -> float:
    """Return the share, 0..1, of all ranks' work that is deleted."""
    gone = sum(
        linears.operations(rank, taken.pruned)
        for rank, classes in reliefs.items()
        for linears, taken in zip(costs.classes, classes, strict=True)
    )
    whole = sum(c.operations(rank, c.columns[rank]) for c in costs.classes for rank in range(costs.ranks))
    return gone / whole if whole else 0.0
