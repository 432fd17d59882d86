"""One rank of the gang behind test_layers.py and test_vit.py: compares sharded with unsharded, writes the errors.

Called as: layer_checks.py RANK RANKS FOLDER. An error is max |a - b| / max(1e-6, max |b|).
"""

import json
import random
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from heterotp_api.training import ModelShape
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import NullClock, PhaseClock
from heterotp_trainer.model.vit import VisionTransformer
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.tensor_parallel.attention import ParallelAttention
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.mlp import ParallelMLP
from heterotp_trainer.tensor_parallel.unit_spec import shard_spec
from torch import Tensor, nn

SHAPE = ModelShape(hidden_size=24, depth=2, heads=6, patch_size=2, ffn_ratio=2)
HEADS, UNITS = SHAPE.heads, SHAPE.ffn_units
SEED = 11


def scattered(ranks: int, seed: int, idle: int | None = None) -> UnitPlan:
    """Return a random plan whose ranks own units from all over; rank `idle` owns no head."""
    draw = random.Random(seed)

    def deal(units: int, players: list[int]) -> tuple:
        weights = [draw.random() + 0.1 for _ in players]
        owners = draw.choices(players, weights, k=units)
        return tuple(tuple((u, u + 1) for u in range(units) if owners[u] == rank) for rank in range(ranks))

    return UnitPlan(deal(HEADS, [r for r in range(ranks) if r != idle]), deal(UNITS, list(range(ranks))))


def plans(ranks: int) -> dict[str, UnitPlan]:
    last = ranks - 1
    return {
        "even": UnitPlan.even(ranks, HEADS, UNITS),
        "scattered": scattered(ranks, seed=ranks),
        "no-heads": scattered(ranks, seed=ranks + 10, idle=last),
        "no-units": UnitPlan.from_counts([HEADS] + [0] * last, [UNITS] + [0] * last),
        "by-speed": UnitPlan.from_speeds([1.0] + [0.2] * last, HEADS, UNITS),
    }


def context(group: dist.ProcessGroup | None, rank: int, plan: UnitPlan, **options) -> TPContext:
    options.setdefault("clock", NullClock())
    return TPContext(group, rank, plan.ranks, Device(torch.device("cpu"), "cpu"), unit_plan=plan, **options)


def alone(**options) -> TPContext:
    return context(None, 0, UnitPlan.even(1, HEADS, UNITS), **options)


def error(got: Tensor, want: Tensor) -> float:
    got, want = got.detach(), want.detach()
    if got.shape != want.shape:
        return float("inf")
    return 0.0 if not want.numel() else float((got - want).abs().max() / want.abs().max().clamp_min(1e-6))


def shard_of(full: Tensor, parameter: nn.Parameter, tp: TPContext) -> Tensor:
    spec = shard_spec(parameter)
    return full if spec is None else spec.cut(full, tp.owned(spec.family))


def plain_attention(m: ParallelAttention, x: Tensor) -> Tensor:
    """Textbook attention on full parameters, one head after another."""
    out = m.proj.bias.expand(x.shape)
    size = SHAPE.head_size
    for head in range(HEADS):
        rows = slice(head * 3 * size, (head + 1) * 3 * size)
        q, k, v = F.linear(x, m.qkv.weight[rows], m.qkv.bias[rows]).split(size, dim=-1)
        weights = torch.softmax(q @ k.transpose(1, 2) / size**0.5, dim=-1)
        out = out + (weights @ v) @ m.proj.weight[:, head * size : (head + 1) * size].t()
    return out


def plain_mlp(m: ParallelMLP, x: Tensor) -> Tensor:
    return F.linear(F.gelu(F.linear(x, m.fc1.weight, m.fc1.bias)), m.fc2.weight, m.fc2.bias)


def compare(sharded: nn.Module, full: nn.Module, tp: TPContext, got: Tensor, want: Tensor) -> dict[str, float]:
    """Return the error of the output and of every gradient, and of every parameter as it was initialised."""
    errors = {"output": error(got, want)}
    whole = dict(full.named_parameters())
    for name, parameter in sharded.named_parameters():
        reference = whole[name]
        assert parameter.grad is not None and reference.grad is not None, name
        errors[f"grad {name}"] = error(parameter.grad, shard_of(reference.grad, parameter, tp))
        errors[f"init {name}"] = error(parameter.detach(), shard_of(reference.detach(), parameter, tp))
    return errors


def make_random(module: nn.Module, tp: TPContext) -> None:
    """Give biases and norms values that matter, the same whatever the plan."""
    for name, parameter in module.named_parameters():
        spec = shard_spec(parameter)
        shape = parameter.shape if spec is None else spec.full_shape(parameter.shape)
        if name.endswith("bias"):
            full = torch.randn(shape, generator=torch.Generator().manual_seed(len(name)))
            parameter.data.copy_(shard_of(full, parameter, tp))


def check_layer(kind: str, group: dist.ProcessGroup, rank: int, plan: UnitPlan) -> dict[str, float]:
    """Compare one layer with the textbook's formula on full parameters."""

    def build(tp: TPContext) -> nn.Module:
        if kind == "attention":
            return ParallelAttention(tp, SHAPE.hidden_size, HEADS, name="a", seed=SEED)
        return ParallelMLP(tp, SHAPE.hidden_size, UNITS, name="m", seed=SEED)

    tp = context(group, rank, plan)
    single = alone()
    sharded, full = build(tp), build(single)
    make_random(sharded, tp)
    make_random(full, single)
    x = torch.randn(3, 5, SHAPE.hidden_size, generator=torch.Generator().manual_seed(1))
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    got = sharded(a)
    want = plain_attention(full, b) if kind == "attention" else plain_mlp(full, b)
    weight = torch.randn(x.shape, generator=torch.Generator().manual_seed(2))
    (got * weight).sum().backward()
    (want * weight).sum().backward()
    return {**compare(sharded, full, tp, got, want), "grad input": error(a.grad, b.grad)}


def check_vit(
    group: dist.ProcessGroup, rank: int, plan: UnitPlan, recompute: bool, dtype: torch.dtype
) -> dict[str, float]:
    """Compare the whole model, loss and all, with itself on one rank."""
    clock = PhaseClock()
    tp, single = context(group, rank, plan, clock=clock, dtype=dtype), alone()
    sizes = {"image_size": 8, "channels": 1, "classes": 10, "seed": SEED}
    sharded = VisionTransformer(tp, SHAPE, **sizes, recompute=recompute)
    full = VisionTransformer(single, SHAPE, **sizes)
    generator = torch.Generator().manual_seed(3)
    images, labels = torch.randn(4, 1, 8, 8, generator=generator), torch.arange(4)
    got, want = sharded(images), full(images)
    F.cross_entropy(got, labels).backward()
    F.cross_entropy(want, labels).backward()
    errors = compare(sharded, full, tp, got, want)
    spent = clock.take()
    errors["phase at the end"] = 0.0 if clock.current == "fixed" else 1.0
    errors["phases without time"] = float(sum(spent[name] <= 0 for name in ("matmul", "unit", "fixed", "wait")))
    return errors


def main(rank: int, ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=180))
    group = dist.group.WORLD
    results: dict[str, dict[str, float]] = {}
    for name, plan in plans(ranks).items():
        for kind in ("attention", "mlp"):
            results[f"{kind} {name}"] = check_layer(kind, group, rank, plan)
        results[f"vit {name}"] = check_vit(group, rank, plan, False, torch.float32)
        results[f"recompute {name}"] = check_vit(group, rank, plan, True, torch.float32)
    results["bf16 scattered"] = check_vit(group, rank, plans(ranks)["scattered"], False, torch.bfloat16)
    (folder / f"rank{rank}.json").write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
