"""One rank of a timing gang: a stack of transformer blocks on a fixed batch, trained until told to stop."""

import json
import os
import time

import torch
import torch.distributed as dist
from heterotp_api.training import ModelShape
from heterotp_trainer import Session, run_rank
from heterotp_trainer.devices import EmulatedDevice
from heterotp_trainer.model.vit import Block
from heterotp_trainer.optimization import EagerAdamW
from torch import nn

from heterotp_cli.bench.emulation import SIZES

ROUNDS, BUFFER = 30, 8192  # of the all-reduce that is timed, its elements
EPOCH = 25  # iterations after which importance is measured anew


def subtract_real_transfers(session: Session) -> None:
    """Let the emulated link's time include what a transfer between these processes takes anyway (all ranks).

    Eight processes on a few cores take milliseconds for what a link is emulated to do in as many.
    """
    assert isinstance(session.device, EmulatedDevice)
    buffer = torch.ones(BUFFER)
    seconds = []
    for _ in range(ROUNDS):
        dist.barrier(group=session.gang.tp_group)
        started = time.perf_counter()
        dist.all_reduce(buffer, group=session.gang.tp_group)
        seconds.append(time.perf_counter() - started)
    measured = torch.tensor([min(seconds)])  # the least: what is longer was waiting for a core
    dist.all_reduce(measured, op=dist.ReduceOp.MIN)
    session.device.real_transfer_seconds = float(measured)


def main(session: Session) -> None:
    """Train until stopped; what is measured lands in the run directory as with any other job."""
    sizes = json.loads(os.environ[SIZES])
    torch.set_num_threads(1)
    width, heads, rows = sizes["width"], sizes["heads"], sizes["rows"]
    shape = ModelShape(width, sizes["depth"], heads, 1, sizes["ffnRatio"])
    tp = session.shard(heads=heads, ffn=shape.ffn_units, width=width, rows=rows)
    stack = nn.Sequential(*(Block(tp, shape, name=f"blocks.{i}", seed=0) for i in range(shape.depth)))
    session.watch(stack, EagerAdamW(stack.parameters(), lr=1e-4))
    subtract_real_transfers(session)
    batch = torch.randn(1, rows, width, generator=torch.Generator().manual_seed(0))
    iteration = 0
    while True:
        stack.zero_grad(set_to_none=True)
        stack(batch).square().mean().backward()
        session.step()
        iteration += 1
        if session.boundary(iteration, epoch=iteration // EPOCH).stop:
            return session.finish(state="stopped")


if __name__ == "__main__":
    run_rank(main)
