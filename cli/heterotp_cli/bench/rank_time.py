"""One rank of a timing gang: a stack of transformer blocks on a fixed batch, trained until it is stopped."""

import itertools
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
from heterotp import Session, run_rank
from heterotp_api.training import ModelShape
from heterotp_trainer.balancing.effect import effects
from heterotp_trainer.devices.device import EmulatedDevice
from heterotp_trainer.model.vit import Block
from heterotp_trainer.plans.unit_plan import Family
from heterotp_trainer.rebalancing.balancer import Balancer
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.training.optimizer import EagerAdamW
from torch import nn

from heterotp_cli.bench.emulation import FFN_RATIO, SIZES
from heterotp_cli.bench.scenarios import CALIBRATION, KINDS, PLANS
from heterotp_cli.workdir import write_json

EPOCH = 25  # iterations after which importance is measured anew
LEARNING_RATE = 0.003  # the paper's: PriDiff's theta is absolute as printed


class Calibration:
    """Subtracts the real time of these processes from the emulated link's time, in the first iterations (collective).

    Eight processes on a few cores wait for one another's cores, mostly in collectives: without this an iteration
    would take longer than the iteration that it emulates, and matmul would have too small a share of it.
    """

    def __init__(self, device: EmulatedDevice, wanted_seconds: float, collectives: int) -> None:
        self._device, self._wanted, self._collectives = device, wanted_seconds, collectives
        self._seconds: list[float] = []
        self._ends = list(itertools.accumulate(CALIBRATION))

    def take(self, iteration: int, seconds: float) -> None:
        """Take the seconds of an iteration; at the end of a round, correct the link."""
        if iteration > self._ends[-1]:
            return
        self._seconds.append(seconds)
        if iteration in self._ends:
            over = torch.tensor([statistics.median(self._seconds[1:]) - self._wanted])
            dist.all_reduce(over)
            self._device.real_transfer_seconds += float(over) / dist.get_world_size() / self._collectives
            self._seconds = []


def longer(tp: TPContext, matmul_seconds: float) -> float:
    """Return the seconds that uneven shares add to an iteration of equal ranks; each family has its own barrier."""
    attention = 4 / (4 + 2 * FFN_RATIO)  # share of the products' operations
    shares: dict[Family, float] = {"heads": attention, "ffn": 1 - attention}
    most = {family: max(tp.unit_plan.counts(family)) * tp.ranks / tp.unit_plan.total(family) for family in shares}
    return matmul_seconds * sum(share * (most[family] - 1) for family, share in shares.items())


def pin(rank: int, cores: int) -> None:
    """Keep this process on one core: ranks of a real gang must not take each other's; cores: 0: leave it alone."""
    if cores:
        usable = sorted(os.sched_getaffinity(0))[:cores]
        os.sched_setaffinity(0, {usable[rank % len(usable)]})


def main(session: Session) -> None:
    """Train until stopped; measurements are written to the run directory as for any job."""
    sizes = json.loads(os.environ[SIZES])
    torch.set_num_threads(1)
    pin(session.environment.rank, sizes.get("cores", 0))
    width, heads, rows = sizes["width"], sizes["heads"], sizes["rows"]
    shape = ModelShape(width, sizes["depth"], heads, 1, sizes["ffnRatio"])
    tp = session.shard(probe=(rows, width, max(1, shape.ffn_units // session.environment.ranks)))
    stack = nn.Sequential(*(Block(tp, shape, name=f"blocks.{i}", seed=0) for i in range(shape.depth)))
    optimizer = EagerAdamW(stack.parameters(), lr=LEARNING_RATE)
    batch = torch.randn(1, rows, width, generator=torch.Generator().manual_seed(0))

    def forward_and_backward() -> None:
        stack.zero_grad(set_to_none=True)
        loss: torch.Tensor = stack(batch).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]

    session.watch(stack, optimizer)
    link = None
    if isinstance(session.device, EmulatedDevice):
        wanted = sizes["iterationSeconds"] + longer(tp, sizes["matmulSeconds"])
        link = Calibration(session.device, wanted, 4 * sizes["depth"])
    iteration, plans, workdir = 0, {}, session.environment.workdir
    while True:
        started = time.perf_counter()
        forward_and_backward()
        session.step()
        iteration += 1
        if session.boundary(iteration, epoch=iteration // EPOCH).stop:
            return session.finish(state="stopped")
        if link is not None:
            link.take(iteration, time.perf_counter() - started)
        number = str(session.balancer.plan.decision_id)
        if session.environment.rank == 0 and workdir is not None and number not in plans:
            plans[number] = decided(session.balancer)
            write_json(workdir / PLANS, plans)


def decided(balancer: Balancer) -> dict[str, object]:
    """Return each rank's work under the plan in force, the predicted seconds and the reason."""
    plan, every = balancer.plan, effects(balancer.plan, balancer.costs)
    return {
        "prunedShares": pruned(balancer),
        "prunedRatio": [each.pruned for each in every],
        "migratedRatio": [each.migrated for each in every],
        "predicted": plan.predicted_seconds,
        "reason": plan.reason,
    }


def pruned(balancer: Balancer) -> list[list[float]]:
    """Return per rank and kind the share of columns that the plan in force prunes."""
    plan, costs, shares = balancer.plan, balancer.costs, []
    for rank in range(balancer.tp.ranks):
        found = dict.fromkeys(KINDS, 0.0)
        for linears, taken in zip(costs.classes, plan.reductions_by_rank.get(rank, ()), strict=False):
            found[linears.name.rpartition(".")[2]] = taken.pruned / linears.columns[rank]
        shares.append([*found.values()])
    return shares


if __name__ == "__main__":
    run_rank(main)
