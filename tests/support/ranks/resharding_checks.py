"""One rank of the gang behind test_moving.py: training whose units change rank against training whose units stay.

Called as: resharding_checks.py RANK RANKS FOLDER. An error is max |a - b| / max(1e-6, max |b|).
"""

import json
import random
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from heterotp_api.policy import BalancingSettings
from heterotp_api.training import Training
from heterotp_trainer.checkpoint import stream
from heterotp_trainer.model.vit import VisionTransformer
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.rebalancing.column_assigner import ColumnAssigner
from heterotp_trainer.resharding.unit_mover import UnitMover
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.gradients import gradient_norm, scale_gradients
from heterotp_trainer.tensor_parallel.linear import ColumnParallelLinear, RowParallelLinear
from heterotp_trainer.tensor_parallel.unit_spec import gated_ffn, grouped_heads
from heterotp_trainer.training.optimizer import adamw
from support.ranks.layer_checks import HEADS, SEED, SHAPE, UNITS, context, error, scattered
from torch import nn

STEPS = 10
TRAINING = Training(weight_decay=0.1)
EPSILON = 1e-3  # Adam's: or gradients that are nothing but rounding (of key biases) would be blown up to whole steps
RECIPES = {
    "fp32": {},
    "clipping": {"clip": 0.05},
    "recomputation": {"recompute": True},
    "accumulation": {"parts": 2},
    "all": {"clip": 0.05, "recompute": True, "parts": 2},
    "bf16": {"dtype": torch.bfloat16},
    "bf16 all": {"dtype": torch.bfloat16, "clip": 0.05, "recompute": True, "parts": 2},
}
IMPORTANT = BalancingSettings(strategy="ZERO")  # keeps importance


class Training10:
    """One model in training, from a fixed start on."""

    def __init__(
        self, group, rank: int, plan: UnitPlan, clip=None, recompute=False, parts=1, dtype=torch.float32
    ) -> None:
        self.tp = context(group, rank, plan, dtype=dtype)
        sizes = {"image_size": 8, "channels": 1, "classes": 10, "seed": SEED}
        self.model = VisionTransformer(self.tp, SHAPE, **sizes, recompute=recompute)
        self.optimizer = adamw(self.model.parameters(), TRAINING)
        for each in self.optimizer.param_groups:
            each["eps"] = EPSILON
        self.parameters = dict(self.model.named_parameters())
        self.assigner = ColumnAssigner(self.model, self.tp)
        self.assigner.follow(IMPORTANT)
        self.unit_mover = UnitMover(self.tp, self.parameters, self.optimizer, self.assigner.sharded_states)
        self.clip, self.parts, self.losses = clip, parts, []

    def step(self, number: int) -> None:
        generator = torch.Generator().manual_seed(number)
        images, labels = torch.randn(4, 1, 8, 8, generator=generator), torch.arange(4)
        self.optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for some, answers in zip(images.chunk(self.parts), labels.chunk(self.parts), strict=True):
            # kept alive over the move, as a training loop's own variable is
            self.loss = F.cross_entropy(self.model(some), answers) / self.parts
            self.loss.backward()
            total += float(self.loss.detach())
        if self.clip is not None:
            norm = gradient_norm(self.parameters.values(), self.tp)
            scale_gradients(self.parameters.values(), min(1.0, self.clip / norm))
        self.optimizer.step()
        self.assigner.count_step()
        if number % 3 == 2:
            self.assigner.refresh()
        self.losses.append(total)

    def state(self) -> dict[str, torch.Tensor]:
        """Return on rank 0 all parameters and moments in canonical order."""
        found = {}
        stream.gather(self.parameters, self.optimizer, self.tp, lambda name, whole: found.update({name: whole.clone()}))
        return found

    def deltas(self) -> list[torch.Tensor]:
        """Return what importance knows of the columns of row-parallel linears, in canonical order (rank 0)."""
        found = []
        for linear, importance in self.assigner._importance.items():
            if linear.parallel == "row" and importance.delta is not None:
                spec = linear.spec.__class__(linear.spec.family, 0, linear.spec.rows_per_unit, linear.spec.total_units)
                found.append(stream.assemble(importance.delta, spec, self.tp))
        return found


def plans_of(ranks: int, draw: random.Random) -> list[UnitPlan]:
    """Return a random sequence of plans, with ranks without heads or without any unit among them."""
    kinds = [
        lambda: scattered(ranks, draw.randrange(1000)),
        lambda: scattered(ranks, draw.randrange(1000), idle=draw.randrange(ranks)),
        lambda: UnitPlan.from_speeds([draw.choice([1.0, 0.5, 0.1]) for _ in range(ranks)], HEADS, UNITS),
        lambda: UnitPlan.from_counts([HEADS] + [0] * (ranks - 1), [UNITS] + [0] * (ranks - 1)),
        lambda: UnitPlan.even(ranks, HEADS, UNITS),
    ]
    return [draw.choice(kinds)() for _ in range(3)]


def check_training(group, rank: int, ranks: int, number: int, recipe: dict) -> dict[str, float]:
    """Compare ten steps with three moves between them with ten steps without."""
    draw = random.Random(f"{ranks} {number}")
    even = UnitPlan.even(ranks, HEADS, UNITS)
    unit_move, staying = (Training10(group, rank, even, **recipe) for _ in range(2))
    moves = dict(zip(sorted(draw.sample(range(1, STEPS), 3)), plans_of(ranks, draw), strict=True))
    identities = {name: id(p) for name, p in unit_move.parameters.items()}
    for step in range(STEPS):
        if step in moves:
            unit_move.unit_mover.move(moves[step])
        unit_move.step(step)
        staying.step(step)
    errors = {"loss": max(abs(a - b) / abs(b) for a, b in zip(unit_move.losses, staying.losses, strict=True))}
    got, want = unit_move.state(), staying.state()
    errors["state"] = max((error(got[name].double(), want[name].double()) for name in want), default=0.0)
    pairs = zip(unit_move.deltas(), staying.deltas(), strict=True)
    errors["importance"] = max((error(a, b) for a, b in pairs if a is not None), default=0.0)
    errors["identity"] = float(identities != {name: id(p) for name, p in unit_move.model.named_parameters()})
    return errors


class FlatBlock(nn.Module):
    """A block of one's own: grouped heads and a gated network, and all their linears in one module."""

    def __init__(self, tp: TPContext, width: int) -> None:
        super().__init__()
        parts = {**grouped_heads(HEADS, 2, 4), **gated_ffn(UNITS)}
        for name, spec in parts.items():
            kind = RowParallelLinear if name in ("proj", "down") else ColumnParallelLinear
            setattr(self, name, kind(tp, spec, width, name=name, seed=SEED))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query = self.query(x).unflatten(-1, (-1, 2, 4))
        key, value = (linear(x).unflatten(-1, (-1, 1, 4)) for linear in (self.key, self.value))
        x = x + self.proj((query * key + value).flatten(-3))
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


def check_flat_block(group, rank: int, ranks: int) -> dict[str, float]:
    """Move a block whose attention and network stand in one module: what it computes, and its whole state, stay."""
    tp = context(group, rank, UnitPlan.even(ranks, HEADS, UNITS))
    block, x = FlatBlock(tp, 16), torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(1))
    optimizer = adamw(block.parameters(), TRAINING)
    parameters = dict(block.named_parameters())
    unit_mover = UnitMover(tp, parameters, optimizer, lambda parameter: [])

    def state() -> dict[str, torch.Tensor]:
        found = {}
        stream.gather(parameters, optimizer, tp, lambda name, whole: found.update({name: whole.clone()}))
        return found

    errors = {"output": 0.0, "state": 0.0}
    for plan in (*plans_of(ranks, random.Random(f"flat {ranks}")), UnitPlan.even(ranks, HEADS, UNITS)):
        optimizer.zero_grad(set_to_none=True)
        block(x).square().mean().backward()
        optimizer.step()
        wanted, before = block(x).detach(), state()
        unit_mover.move(plan)
        after = state()
        errors["output"] = max(errors["output"], error(block(x).detach(), wanted))
        errors["state"] += float(not all(torch.equal(before[name], after[name]) for name in before))
    return errors


def check_there_and_back(group, rank: int, ranks: int) -> dict[str, float]:
    """Move to three plans and back to even shares: bit-equal, in all that is kept."""
    training = Training10(group, rank, UnitPlan.even(ranks, HEADS, UNITS))
    for step in range(4):
        training.step(step)
    before = {name: p.detach().clone() for name, p in training.parameters.items()}
    moments = {
        name: {k: v.clone() for k, v in training.optimizer.state[p].items()} for name, p in training.parameters.items()
    }
    important = training.deltas()
    assert rank or any(each is not None and each.any() for each in important)
    for plan in (*plans_of(ranks, random.Random(ranks)), UnitPlan.even(ranks, HEADS, UNITS)):
        assert training.unit_mover.reserve(plan)
        training.unit_mover.move(plan)
    same = [torch.equal(before[name], p.detach()) for name, p in training.parameters.items()]
    for name, parameter in training.parameters.items():
        state = training.optimizer.state[parameter]
        same += [torch.equal(moments[name][key], state[key]) for key in moments[name]]
    same += [a is None or torch.equal(a, b) for a, b in zip(important, training.deltas(), strict=True)]
    return {"different": float(not all(same))}


def main(rank: int, ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=180))
    group = dist.group.WORLD
    results = {f"{name} {n}": check_training(group, rank, ranks, n, r) for name, r in RECIPES.items() for n in range(2)}
    results["flat block"] = check_flat_block(group, rank, ranks)
    results["there and back"] = check_there_and_back(group, rank, ranks)
    (folder / f"rank{rank}.json").write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
