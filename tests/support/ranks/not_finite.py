"""A loop whose batches are not finite in some iterations: `not_finite.py POLICY FIRST LAST`, all from FIRST to LAST.

Each rank prints a line on every update: `UPDATE iteration made changed`, and what the update, or none, changed.
"""

import sys

import torch
from heterotp import ParallelAttention, ParallelMLP, run_rank
from heterotp_trainer.boundary.finite_guard import NonFiniteError
from torch import nn

POLICY, FIRST, LAST = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
WIDTH, HEADS, UNITS, ITERATIONS = 16, 4, 32, 16


class Model(nn.Module):
    """[B, T, 16] -> [B, 16], with running statistics and a count that it replaces in every call."""

    def __init__(self, tp):
        super().__init__()
        self.attention = ParallelAttention(tp, WIDTH, HEADS, name="attention", seed=1)
        self.mlp, self.norm = ParallelMLP(tp, WIDTH, UNITS, name="mlp", seed=1), nn.BatchNorm1d(WIDTH)
        self.register_buffer("largest", torch.zeros(()))

    def forward(self, x):
        self.largest = torch.maximum(self.largest, x.detach().abs().max())
        x = x + self.attention(x)
        return self.norm((x + self.mlp(x)).mean(1))


def values(model):
    return {name: tensor.detach().clone() for name, tensor in model.state_dict(keep_vars=True).items()}


def changed(model, before):
    """Return the names of the tensors that changed; NaN differs from itself."""
    return (
        ",".join(name for name, tensor in values(model).items() if not torch.equal(tensor, before[name])) or "nothing"
    )


def main(session):
    torch.manual_seed(0)
    model = Model(session.shard())
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    session.watch(model, optimizer, on_non_finite=POLICY)
    iteration = session.restore()
    draw = torch.Generator().manual_seed(2)
    while iteration < ITERATIONS:
        iteration += 1
        batch = torch.randn(8, 4, WIDTH, generator=draw)
        if FIRST <= iteration <= LAST:
            batch[3, 1] = float("nan")
        before = values(model)
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        try:
            made = session.step(loss=loss)
        except NonFiniteError:
            parameters = {name for name, _ in model.named_parameters()}
            found = set(changed(model, before).split(",")) & parameters
            print(f"STOPPED {iteration} {','.join(sorted(found)) or 'nothing'}", flush=True)
            raise
        print(f"UPDATE {iteration} {made} {changed(model, before)}", flush=True)
        session.boundary(iteration, loss=loss)
    session.finish()


run_rank(main)
