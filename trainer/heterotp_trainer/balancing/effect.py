"""The effect of a plan on each rank: the shares and sums that status and metrics show."""

from dataclasses import dataclass

from heterotp_trainer.balancing.prediction import shares, transfers, weights_of
from heterotp_trainer.plans.arrays import added, total
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.work_plan import Piece, WorkPlan
from heterotp_trainer.plans.work_reduction import WorkReductions


@dataclass(frozen=True)
class Effect:
    """One rank's part of a plan: shares of its own work, 0..1; columns and bytes per iteration, both directions.

    pruned = gamma (1 - beta), migrated = gamma beta; received: work computed for other ranks, over an even shard.
    """

    pruned: float = 0.0
    migrated: float = 0.0
    received: float = 0.0
    columns_out: int = 0
    columns_in: int = 0
    bytes_out: float = 0.0
    bytes_in: float = 0.0


def effects(plan: WorkPlan, costs: Costs) -> tuple[Effect, ...]:
    """Return every rank's part of the plan."""
    if not plan.reductions:
        return (Effect(),) * costs.ranks
    tables, reduced = costs.tables, WorkReductions.of(plan.reductions_by_rank, len(costs.classes), costs.ranks)
    migrated_work = total(tables.operations * reduced.migrated)
    work = added(tables.operations * tables.columns, costs.ranks)
    even = total(work) / costs.ranks
    pruned, migrated = shares(costs, reduced.pruned), shares(costs, reduced.migrated)
    received = migrated_work / even * weights_of(plan.receivers, costs.ranks)
    incoming: dict[int, list[tuple[int, Piece]]] = {rank: [] for rank in range(costs.ranks)}
    for k in range(len(costs.classes)) if plan.migrates else ():
        for piece in plan.pieces(k):
            incoming[piece.receiver].append((k, piece))
    sent = [[_sent(plan, costs, k, rank) for k in range(len(costs.classes))] for rank in range(costs.ranks)]
    return tuple(
        Effect(
            pruned=float(pruned[rank]),
            migrated=float(migrated[rank]),
            received=float(received[rank]),
            columns_out=int(sum(reduced.migrated[k, rank] * c.calls for k, c in enumerate(costs.classes))),
            columns_in=sum(piece.columns * costs.classes[k].calls for k, piece in incoming[rank]),
            bytes_out=sum(sent[rank]),
            bytes_in=sum(_part(plan, k, piece) * sent[piece.sender][k] for k, piece in incoming[rank]),
        )
        for rank in range(costs.ranks)
    )


def _sent(plan: WorkPlan, costs: Costs, k: int, sender: int) -> float:
    """Return the bytes of a sender's migration of class k in one iteration, both directions."""
    taken = plan.reductions_by_rank.get(sender)
    if taken is None or not taken[k].migrated:
        return 0.0
    linears, columns = costs.classes[k], float(taken[k].migrated)
    count = float(len(plan.pieces_by_sender(k)[sender]))
    outputs = float(linears.outputs[sender])
    moved = transfers(linears.parallel, linears.rows, outputs, columns, count, plan.primitive)
    return sum(each.elements for each in moved) * linears.calls * costs.item_bytes


def _part(plan: WorkPlan, k: int, piece: Piece) -> float:
    """Return the piece's share of its sender's migrated columns, 0..1."""
    return piece.columns / plan.reductions_by_rank[piece.sender][k].migrated
