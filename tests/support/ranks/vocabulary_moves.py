"""One rank of the gang behind test_vocabulary_gang.py: rows of the vocabulary that move, and columns of the logits.

Called as: vocabulary_checks.py RANK RANKS FOLDER. Sums are in float64. An error is max |a - b| / max(1e-6, max |b|).
"""

import json
import random
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from heterotp_api.policy import BalancingSettings
from heterotp_trainer.checkpoint import stream
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.rebalancing.column_assigner import ColumnAssigner
from heterotp_trainer.resharding.unit_mover import UnitMover
from heterotp_trainer.tensor_parallel.gradients import gradient_norm, scale_gradients
from heterotp_trainer.tensor_parallel.unit_spec import shard_spec
from support.language_model import HEADS, ROWS, UNITS, LanguageModel, Plain, tokens_of
from support.ranks.layer_checks import context, error

STEPS = 10
IMPORTANT = BalancingSettings(strategy="ZERO")  # keeps importance
RECIPES = {
    "two weights": {},
    "tied": {"tied": True},
    "tied, clipping, recomputation, accumulation": {"tied": True, "clip": 0.05, "recompute": True, "parts": 2},
}


def dealt(ranks: int, seed: int, idle: int | None = None) -> UnitPlan:
    """Return a random plan whose ranks own units from all over; rank `idle` owns no row of the vocabulary."""
    draw = random.Random(seed)

    def deal(units: int, players: list[int]) -> tuple:
        owners = draw.choices(players, [draw.random() + 0.1 for _ in players], k=units)
        return tuple(tuple((u, u + 1) for u in range(units) if owners[u] == rank) for rank in range(ranks))

    every = list(range(ranks))
    return UnitPlan(deal(HEADS, every), deal(UNITS, every), deal(ROWS, [r for r in every if r != idle]))


def plans_of(ranks: int) -> list[UnitPlan]:
    last = ranks - 1
    alone = UnitPlan.from_counts([HEADS] + [0] * last, [UNITS] + [0] * last, [ROWS] + [0] * last)
    return [
        dealt(ranks, 1),
        dealt(ranks, 2, idle=0),
        alone,
        UnitPlan.from_counts(alone.counts("heads"), alone.counts("ffn"), [0] * last + [ROWS]),
    ]


class Training:
    """One model in training, from a fixed start on."""

    def __init__(self, group, rank: int, plan: UnitPlan, clip=None, parts=1, **options) -> None:
        self.tp = context(group, rank, plan, dtype=torch.float64)
        torch.manual_seed(0)
        self.model = LanguageModel(self.tp, **options).double()
        self.parameters = dict(self.model.named_parameters())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01, eps=1e-3)
        self.assigner = ColumnAssigner(self.model, self.tp)
        self.assigner.follow(IMPORTANT)
        self.unit_mover = UnitMover(self.tp, self.parameters, self.optimizer, self.assigner.sharded_states)
        self.clip, self.parts, self.losses = clip, parts, []

    def step(self, number: int) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        pieces = [each.chunk(self.parts) for each in tokens_of(number)]
        losses = []
        for tokens, targets in zip(*pieces, strict=True):
            loss = self.model(tokens, targets) / self.parts
            loss.backward()
            losses.append(float(loss.detach()))
        if self.clip is not None:
            norm = gradient_norm(self.parameters.values(), self.tp)
            scale_gradients(self.parameters.values(), min(1.0, self.clip / norm))
        self.optimizer.step()
        self.assigner.count_step()
        if number % 3 == 2:
            self.assigner.refresh()
        self.losses.append(sum(losses))

    def state(self) -> dict[str, torch.Tensor]:
        """Return on rank 0 all parameters and moments in canonical order."""
        found = {}
        stream.gather(self.parameters, self.optimizer, self.tp, lambda name, whole: found.update({name: whole.clone()}))
        return found


def check_plan(group, rank: int, plan: UnitPlan, tied: bool) -> dict[str, float]:
    """Compare loss and gradients under a plan with those of torch's own embedding and cross-entropy on one rank."""
    ours = Training(group, rank, plan, tied=tied)
    alone = Training(None, 0, UnitPlan.even(1, HEADS, UNITS, ROWS), tied=tied)
    loss, wanted = ours.model(*tokens_of(0)), Plain(alone.model)(*tokens_of(0))
    loss.backward()
    wanted.backward()
    errors = {"loss": float(abs(loss - wanted) / wanted)}
    for name, parameter in ours.parameters.items():
        whole, spec = alone.parameters[name].grad, shard_spec(parameter)
        cut = whole if spec is None else spec.cut(whole, ours.tp.owned(spec.family))
        if cut.numel():
            errors[name] = float((parameter.grad - cut).abs().max() / whole.abs().max())
    return errors


def check_training(group, rank: int, ranks: int, recipe: dict) -> dict[str, float]:
    """Compare ten steps with four moves between them with ten steps without."""
    even = UnitPlan.even(ranks, HEADS, UNITS, ROWS)
    moving, staying = (Training(group, rank, even, **recipe) for _ in range(2))
    moves = dict(zip((2, 4, 5, 8), plans_of(ranks), strict=True))
    identities = [id(p) for p in moving.model.parameters()]
    for step in range(STEPS):
        if step in moves:
            assert moving.unit_mover.reserve(moves[step])
            moving.unit_mover.move(moves[step])
        moving.step(step)
        staying.step(step)
    errors = {"loss": max(abs(a - b) / abs(b) for a, b in zip(moving.losses, staying.losses, strict=True))}
    got, want = moving.state(), staying.state()
    errors["state"] = max((error(got[name], want[name]) for name in want), default=0.0)
    errors["identity"] = float(identities != [id(p) for p in moving.model.parameters()])
    errors["learned"] = float(moving.losses[-1] >= moving.losses[0])
    before = moving.state()
    moving.unit_mover.move(dealt(ranks, 7))
    moving.unit_mover.move(even)
    after = moving.state()
    errors["bits"] = float(not all(torch.equal(before[name], after[name]) for name in before))
    errors["sizes"] = float(
        any(
            p.shape[spec.dim] != even.counts(spec.family)[rank] * spec.rows_per_unit
            for p in moving.parameters.values()
            if (spec := shard_spec(p)) is not None
        )
    )
    return errors


def main(rank: int, ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=180))
    group = dist.group.WORLD
    results = {name: check_training(group, rank, ranks, recipe) for name, recipe in RECIPES.items()}
    every = enumerate([UnitPlan.even(ranks, HEADS, UNITS, ROWS), *plans_of(ranks)])
    results["plans"] = {f"{n} {tied}": check_plan(group, rank, p, tied) for n, p in every for tied in (False, True)}
    (folder / f"rank{rank}.json").write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
