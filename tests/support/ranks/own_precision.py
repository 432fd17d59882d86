"""A language model's blocks and a loop as a user writes them: `own_precision.py PRECISION RECOMPUTE MICRO ITERATIONS`.

RECOMPUTE: `plain`; `recompute`: the activations of blocks are computed again; `apart`: the gates are not beside the
other layers of their networks. MICRO: micro-batches of a batch.
"""

import sys

import torch
import torch.nn.functional as F
from heterotp import run_rank
from heterotp_trainer.tensor_parallel.attention import ParallelAttention
from heterotp_trainer.tensor_parallel.linear import ColumnParallelLinear, RowParallelLinear
from heterotp_trainer.tensor_parallel.unit_spec import gated_ffn
from torch import nn
from torch.utils.checkpoint import checkpoint

PRECISION, RECOMPUTE, MICRO, ITERATIONS = sys.argv[1], sys.argv[2] == "recompute", int(sys.argv[3]), int(sys.argv[4])
WIDTH, HEADS, UNITS, DEPTH, BATCH, TOKENS = 24, 6, 48, 2, 16, 4


class Block(nn.Module):
    """x + attention(norm x), then x + down(silu(gate norm x) * up norm x), [B, T, D] -> [B, T, D]."""

    def __init__(self, tp, name):
        super().__init__()
        parts = gated_ffn(UNITS)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = ParallelAttention(tp, WIDTH, HEADS, name=f"{name}.attention", seed=1)
        gate = ColumnParallelLinear(tp, parts["gate"], WIDTH, name=f"{name}.gate", seed=1, bias=False)
        self.gate = nn.Sequential(gate) if sys.argv[2] == "apart" else gate
        self.up = ColumnParallelLinear(tp, parts["up"], WIDTH, name=f"{name}.up", seed=1, bias=False)
        self.down = RowParallelLinear(tp, parts["down"], WIDTH, name=f"{name}.down", seed=1, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    """[B, T, D] -> [B, 5]."""

    def __init__(self, tp):
        super().__init__()
        self.embed, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 5)
        self.blocks = nn.ModuleList(Block(tp, f"blocks.{number}") for number in range(DEPTH))

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if RECOMPUTE and self.training else block(x)
        return self.head(x.mean(1))


def main(session):
    torch.manual_seed(0)
    model = Model(session.shard())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    session.watch(model, optimizer, iterations=ITERATIONS)
    draw = torch.Generator().manual_seed(3)
    images, labels = torch.randn(64, TOKENS, WIDTH, generator=draw), torch.randint(5, (64,), generator=draw)
    for iteration in range(session.restore(), ITERATIONS):
        chosen = torch.randperm(64, generator=torch.Generator().manual_seed(iteration))[:BATCH]
        optimizer.zero_grad()
        total = torch.zeros(())
        for part, answers in zip(images[chosen].chunk(MICRO), labels[chosen].chunk(MICRO), strict=True):
            loss = F.cross_entropy(model(part), answers) / MICRO
            loss.backward()
            total += loss.detach()
        session.step(1.0, loss=total)
        session.boundary(iteration + 1, loss=total, samples=BATCH)
    session.finish()


run_rank(main, precision=PRECISION)
