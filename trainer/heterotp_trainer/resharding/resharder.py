"""One rank's part in changes of the unit plan: memory for a proposal, the move, and its price."""

import time
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import nn

from heterotp_trainer.balancing.prediction import move_seconds
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
    """One completed move: its seconds, and the bytes that travelled between ranks."""

    seconds: float
    nbytes: float


class Resharder:
    """Moves the units of one rank; all ranks call every method at the same boundary."""

    def __init__(
        self, model: nn.Module, tp: TPContext, optimizer: torch.optim.Optimizer | None, more: ExtraStates
    ) -> None:
        self.tp = tp
        self.unit_mover = UnitMover(tp, dict(model.named_parameters()), optimizer, more)
        self.ready = 0  # answer to the newest proposal: its decision_id, negative where memory is missing

    def prices(self) -> UnitMoveCost:
        """Return the bytes of one unit of each family."""
        nbytes = self.unit_mover.unit_bytes()
        return UnitMoveCost(nbytes["heads"], nbytes["ffn"], nbytes["vocab"])

    def answer(self, proposal: Proposal | None) -> None:
        """Reserve memory for a new proposal; release it when there is no proposal any more."""
        decision_id = proposal.decision_id if proposal is not None else 0
        if decision_id == abs(self.ready):
            return
        self.unit_mover.release()
        self.ready = (
            0 if proposal is None else decision_id if self.unit_mover.reserve(proposal.unit_plan) else -decision_id
        )

    def move(self, after: UnitPlan, costs: Costs) -> tuple[Costs, CompletedMove]:
        """Move all units to their owners in `after` (all ranks); return the new costs and the completed move."""
        before, started = self.tp.unit_plan, time.perf_counter()
        self.unit_mover.move(after)
        taken = torch.tensor(time.perf_counter() - started, dtype=torch.float64)
        # the price of the next move must be the same on all ranks
        dist.all_reduce(taken, op=dist.ReduceOp.MAX, group=self.tp.control_group)
        nbytes = sum(each.units * costs.unit_move.unit_bytes(each.family) for each in transfers(before, after))
        moved = CompletedMove(float(taken), nbytes)
        return _corrected(costs, before, after, moved.seconds).owned_by(after), moved


def _corrected(costs: Costs, before: UnitPlan, after: UnitPlan, seconds: float) -> Costs:
    """Return the costs, with the price of moves corrected by the seconds of the last one."""
    fresh = replace(costs, unit_move=replace(costs.unit_move, correction=1.0))
    counts = ({family: plan.counts(family) for family in FAMILIES} for plan in (before, after))
    expected = move_seconds(fresh, *counts)
    correction = seconds / expected if expected > 0 else 1.0
    correction = min(MOST_CORRECTION, max(LEAST_CORRECTION, correction))
    return replace(costs, unit_move=replace(costs.unit_move, correction=correction))
