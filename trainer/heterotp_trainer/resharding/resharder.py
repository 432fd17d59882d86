"""One rank's part in who owns which units: memory for a proposal, the move, and how fast an idle rank would be."""

import time
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import nn

from heterotp_trainer.balancing.strategies.reshard import move_seconds
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.linears import Moving
from heterotp_trainer.plans.ownership import Proposal
from heterotp_trainer.plans.unit_plan import FAMILIES, Plan, transfers
from heterotp_trainer.rebalancing.speed_probe import PaceProbe
from heterotp_trainer.resharding.sharded_state import More
from heterotp_trainer.resharding.unit_mover import Mover
from heterotp_trainer.tensor_parallel.context import TPContext

PROBE_EVERY = 5  # iterations
LEAST_CORRECTION, MOST_CORRECTION = 0.1, 10.0


@dataclass(frozen=True)
class Moved:
    """One move that was made: what it took and how much went from rank to rank."""

    seconds: float
    nbytes: float


class Owner:
    """Holds the units of one rank; every method but `probe` is called by all ranks at the same boundary."""

    def __init__(self, model: nn.Module, tp: TPContext, optimizer: torch.optim.Optimizer | None, more: More) -> None:
        self.tp = tp
        self.mover = Mover(tp, dict(model.named_parameters()), optimizer, more)
        self.ready = 0  # the answer to the newest proposal: its number, negative where there is no memory
        self.probed = 0.0  # how many times as long products take as in the pretest; 0: the rank's own work tells
        self._probe, self._boundaries = PaceProbe(tp), 0

    def prices(self) -> Moving:
        """Return the bytes of one unit of each family."""
        nbytes = self.mover.unit_bytes()
        return Moving(nbytes["heads"], nbytes["ffn"])

    def answer(self, proposal: Proposal | None) -> None:
        """Reserve memory for a new proposal, or give it back when there is none any more."""
        number = proposal.number if proposal is not None else 0
        if number == abs(self.ready):
            return
        self.mover.release()
        self.ready = 0 if proposal is None else number if self.mover.reserve(proposal.shards) else -number

    def move(self, after: Plan, costs: Costs) -> tuple[Costs, Moved]:
        """Move all units to their owners; return the costs from now on, and what it took."""
        before, started = self.tp.plan, time.perf_counter()
        self.mover.move(after)
        taken = torch.tensor(time.perf_counter() - started, dtype=torch.float64)
        dist.all_reduce(taken, op=dist.ReduceOp.MAX)  # the price of the next one must be the same on all ranks
        nbytes = sum(each.units * costs.moving.unit_bytes(each.family) for each in transfers(before, after))
        moved = Moved(float(taken), nbytes)
        return _corrected(costs, before, after, moved.seconds).owned_by(after), moved

    def probe(self, costs: Costs) -> None:
        """Time a small product now and then, on a rank whose own work is too little to tell its speed."""
        self._boundaries += 1
        if not costs.classes or not costs.idle[self.tp.rank]:
            self.probed = 0.0
        elif not self.probed or self._boundaries % PROBE_EVERY == 0:
            self.probed = self._probe.take(costs) or self.probed


def _corrected(costs: Costs, before: Plan, after: Plan, seconds: float) -> Costs:
    """Return the costs with moves as dear as the last one was."""
    fresh = replace(costs, moving=replace(costs.moving, correction=1.0))
    counts = ({family: plan.counts(family) for family in FAMILIES} for plan in (before, after))
    expected = move_seconds(fresh, *counts)
    correction = seconds / expected if expected > 0 else 1.0
    correction = min(MOST_CORRECTION, max(LEAST_CORRECTION, correction))
    return replace(costs, moving=replace(costs.moving, correction=correction))
