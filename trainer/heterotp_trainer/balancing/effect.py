"""What a plan means for each rank, in the shares and sums that status and metrics show."""

from dataclasses import dataclass

from heterotp_trainer.balancing.predict import share_of, transfers
from heterotp_trainer.balancing.work import Costs, Piece, WorkPlan


@dataclass(frozen=True)
class Effect:
    """One rank's part of a plan: shares of its own work, 0..1; columns and bytes (there and back) per iteration.

    pruned = gamma (1 - beta), migrated = gamma beta; received: work done for others, in even shards.
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
    if not plan.reliefs:
        return (Effect(),) * costs.ranks
    even = sum(c.operations(r, c.columns[r]) for c in costs.classes for r in range(costs.ranks)) / costs.ranks
    return tuple(_effect(plan, costs, rank, even) for rank in range(costs.ranks))


def _effect(plan: WorkPlan, costs: Costs, rank: int, even: float) -> Effect:
    taken = plan.taken.get(rank)
    coming = [(k, piece) for k in range(len(costs.classes)) for piece in plan.pieces(k) if piece.receiver == rank]
    if taken is None and not coming:
        return Effect()
    return Effect(
        pruned=share_of(costs, rank, taken, "pruned") if taken else 0.0,
        migrated=share_of(costs, rank, taken, "migrated") if taken else 0.0,
        received=sum(costs.classes[k].operations(piece.sender, piece.columns) for k, piece in coming) / even,
        columns_out=sum(each.migrated * c.calls for each, c in zip(taken or (), costs.classes, strict=False)),
        columns_in=sum(piece.columns * costs.classes[k].calls for k, piece in coming),
        bytes_out=sum(_sent(plan, costs, k, rank) for k in range(len(costs.classes))) if taken else 0.0,
        bytes_in=sum(_part(plan, k, piece) * _sent(plan, costs, k, piece.sender) for k, piece in coming),
    )


def _sent(plan: WorkPlan, costs: Costs, k: int, sender: int) -> float:
    """Return the bytes that a sender's migration of class k moves, there and back."""
    linears, columns = costs.classes[k], plan.taken[sender][k].migrated
    count = len([piece for piece in plan.pieces(k) if piece.sender == sender])
    moved = transfers(linears, sender, columns, count, plan.primitive) if columns else ()
    return float(sum(each.elements for each in moved) * linears.calls * costs.item_bytes)


def _part(plan: WorkPlan, k: int, piece: Piece) -> float:
    """Return the share of a sender's columns that a piece is."""
    return piece.columns / plan.taken[piece.sender][k].migrated
