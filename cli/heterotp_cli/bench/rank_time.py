"""One rank of a timing gang: a stack of transformer blocks on a fixed batch, trained until told to stop."""

import json
import os
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from heterotp_api.training import ModelShape
from heterotp_trainer import Session, run_rank
from heterotp_trainer.devices import EmulatedDevice, settled
from heterotp_trainer.model.vit import Block
from heterotp_trainer.optimization import EagerAdamW
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.units import Family
from torch import nn

from heterotp_cli.bench.emulation import DEPTH, FFN_RATIO, SIZES
from heterotp_cli.bench.scenarios import KINDS, PLANS
from heterotp_cli.workdir import write_json

ROUNDS, ITERATIONS = 3, 7  # of the calibration
EPOCH = 25  # iterations after which importance is measured anew


def calibrate(session: Session, step: Callable[[], None], wanted_seconds: float) -> None:
    """Let the emulated link's time include what these processes need beside it (all ranks).

    Eight processes on a few cores wait for one another's cores, mostly in collectives: without this an iteration
    would take longer than the one that it stands for, and matmul would have too small a share of it.
    """
    device = session.device
    assert isinstance(device, EmulatedDevice)
    for _ in range(ROUNDS):
        seconds = [timed(session, step) for _ in range(ITERATIONS)]
        over = torch.tensor([statistics.median(seconds[1:]) - wanted_seconds])
        dist.all_reduce(over)
        device.real_transfer_seconds += float(over) / session.tp.ranks / (4 * DEPTH)


def longer(tp: TPContext, matmul_seconds: float) -> float:
    """Return what uneven shares add to an iteration of equal ranks: each family has a barrier of its own."""
    attention = 4 / (4 + 2 * FFN_RATIO)  # share of the products' operations
    shares: dict[Family, float] = {"heads": attention, "ffn": 1 - attention}
    most = {family: max(tp.plan.counts(family)) * tp.ranks / tp.plan.total(family) for family in shares}
    return matmul_seconds * sum(share * (most[family] - 1) for family, share in shares.items())


def timed(session: Session, step: Callable[[], None]) -> float:
    """Return the seconds of an iteration, the device's fixed part included."""
    started = time.perf_counter()
    step()
    settled(session.clock, session.device)
    return time.perf_counter() - started


def main(session: Session) -> None:
    """Train until stopped; what is measured lands in the run directory as with any other job."""
    sizes = json.loads(os.environ[SIZES])
    torch.set_num_threads(1)
    width, heads, rows = sizes["width"], sizes["heads"], sizes["rows"]
    shape = ModelShape(width, sizes["depth"], heads, 1, sizes["ffnRatio"])
    tp = session.shard(heads=heads, ffn=shape.ffn_units, width=width, rows=rows)
    stack = nn.Sequential(*(Block(tp, shape, name=f"blocks.{i}", seed=0) for i in range(shape.depth)))
    optimizer = EagerAdamW(stack.parameters(), lr=1e-4)
    batch = torch.randn(1, rows, width, generator=torch.Generator().manual_seed(0))

    def forward_and_backward() -> None:
        stack.zero_grad(set_to_none=True)
        loss: torch.Tensor = stack(batch).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]

    def iterate() -> None:
        forward_and_backward()
        optimizer.step()

    calibrate(session, iterate, sizes["iterationSeconds"] + longer(tp, sizes["matmulSeconds"]))
    session.watch(stack, optimizer)
    iteration, plans, workdir = 0, {}, session.environment.workdir
    while True:
        forward_and_backward()
        session.step()
        iteration += 1
        if session.boundary(iteration, epoch=iteration // EPOCH).stop:
            return session.finish(state="stopped")
        number = str(session.balancer.plan.serial)
        if session.environment.rank == 0 and workdir is not None and number not in plans:
            plans[number] = pruned(session)
            write_json(workdir / PLANS, plans)


def pruned(session: Session) -> list[list[float]]:
    """Return per rank and kind the share of columns that the plan in force prunes."""
    plan, costs, shares = session.balancer.plan, session.balancer.costs, []
    for rank in range(session.tp.ranks):
        found = dict.fromkeys(KINDS, 0.0)
        for linears, taken in zip(costs.classes, plan.taken.get(rank, ()), strict=False):
            found[linears.name.rpartition(".")[2]] = taken.pruned / linears.columns[rank]
        shares.append([*found.values()])
    return shares


if __name__ == "__main__":
    run_rank(main)
