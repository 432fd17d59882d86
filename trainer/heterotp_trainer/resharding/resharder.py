"""One rank's part in who owns which units: memory for a proposal, the move, and how fast an idle rank would be."""

import time
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import nn

from heterotp_trainer.balancing.strategies.reshard import move_seconds
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.linears import UnitMoveCost
from heterotp_trainer.plans.ownership import Proposal
from heterotp_trainer.plans.unit_plan import FAMILIES, UnitPlan, transfers
from heterotp_trainer.resharding.sharded_state import ExtraStates
from heterotp_trainer.resharding.unit_mover import UnitMover
from heterotp_trainer.tensor_parallel.context import TPContext

LEAST_CORRECTION, MOST_CORRECTION = 0.1, 10.0


@dataclass(frozen=True)
class CompletedMove:
    """One move that was made: what it took and how much went from rank to rank."""

    seconds: float
    nbytes: float


class Resharder:
    """Holds the units of one rank; every method is called by all ranks at the same boundary."""

    def __init__(
        self, model: nn.Module, tp: TPContext, optimizer: torch.optim.Optimizer | None, more: ExtraStates
    ) -> None:
        self.tp = tp
        self.unit_mover = UnitMover(tp, dict(model.named_parameters()), optimizer, more)
        self.ready = 0  # the answer to the newest proposal: its number, negative where there is no memory

    def prices(self) -> UnitMoveCost:
        """Return the bytes of one unit of each family."""
        nbytes = self.unit_mover.unit_bytes()
        return UnitMoveCost(nbytes["heads"], nbytes["ffn"])

    def answer(self, proposal: Proposal | None) -> None:
        """Reserve memory for a new proposal, or give it back when there is none any more."""
        number = proposal.decision_id if proposal is not None else 0
        if number == abs(self.ready):
            return
        self.unit_mover.release()
        self.ready = 0 if proposal is None else number if self.unit_mover.reserve(proposal.shards) else -number

    def move(self, after: UnitPlan, costs: Costs) -> tuple[Costs, CompletedMove]:
        """Move all units to their owners; return the costs from now on, and what it took."""
        before, started = self.tp.plan, time.perf_counter()
        self.unit_mover.move(after)
        taken = torch.tensor(time.perf_counter() - started, dtype=torch.float64)
        # the price of the next move must be the same on all ranks
        dist.all_reduce(taken, op=dist.ReduceOp.MAX, group=self.tp.control_group)
        nbytes = sum(each.units * costs.unit_move.unit_bytes(each.family) for each in transfers(before, after))
        moved = CompletedMove(float(taken), nbytes)
        return _corrected(costs, before, after, moved.seconds).owned_by(after), moved


def _corrected(costs: Costs, before: UnitPlan, after: UnitPlan, seconds: float) -> Costs:
    """Return the costs with moves as dear as the last one was."""
    fresh = replace(costs, unit_move=replace(costs.unit_move, correction=1.0))
    counts = ({family: plan.counts(family) for family in FAMILIES} for plan in (before, after))
    expected = move_seconds(fresh, *counts)
    correction = seconds / expected if expected > 0 else 1.0
    correction = min(MOST_CORRECTION, max(LEAST_CORRECTION, correction))
    return replace(costs, unit_move=replace(costs.unit_move, correction=correction))
