"""One rank of the gang behind test_resized.py: pruned and migrated linears against dense formulas, in float64.

Called as: resized_checks.py RANK RANKS FOLDER. An error is max |a - b| / max(1e-6, max |b|).
"""

import json
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from heterotp_api.policy import BalancingSettings
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.plans.work_plan import WorkPlan, pieces
from heterotp_trainer.plans.work_reduction import WorkReduction
from heterotp_trainer.rebalancing.column_assigner import ColumnAssigner
from heterotp_trainer.tensor_parallel.attention import ParallelAttention
from heterotp_trainer.tensor_parallel.column_partition import ColumnPartition, Memory, Migration
from heterotp_trainer.tensor_parallel.columns import ColumnSet
from heterotp_trainer.tensor_parallel.linear import ColumnParallelLinear, RowParallelLinear
from heterotp_trainer.tensor_parallel.mlp import ParallelMLP
from heterotp_trainer.tensor_parallel.unit_spec import ShardSpec
from heterotp_trainer.training.optimizer import EagerAdamW
from support.ranks.layer_checks import context, error
from torch import Tensor, nn

WIDTH, UNITS, HEADS, ROWS, SEED = 24, 48, 8, 10, 5
STEPS = 10


def seeded(*parts: int) -> torch.Generator:
    number = 0
    for part in parts:
        number = number * 1009 + part + 1
    return torch.Generator().manual_seed(number)


def randn(*shape: int, seed: tuple[int, ...]) -> Tensor:
    return torch.randn(shape, generator=seeded(*seed), dtype=torch.float64)


def float64_context(group, rank: int, plan: UnitPlan):
    return context(group, rank, plan, dtype=torch.float64)


def plan_of(ranks: int) -> UnitPlan:
    """Return uneven shares, so that shapes differ from rank to rank."""
    return UnitPlan.from_speeds([1.0, 0.7, 0.4, 0.9][:ranks], HEADS, UNITS)


def linear_of(parallel: str, tp) -> nn.Module:
    spec = ShardSpec("ffn", 0 if parallel == "column" else 1, 1, UNITS)
    kind = ColumnParallelLinear if parallel == "column" else RowParallelLinear
    return kind(tp, spec, WIDTH, name=parallel, seed=SEED, bias=False).double()


def kept_columns(total: int, rank: int, draw: int) -> ColumnSet:
    """Return a random choice of 1 to total - 1 columns, in blocks of two now and then."""
    generator = seeded(rank, draw, 77)
    grain = 2 if draw % 2 and total % 2 == 0 and total > 2 else 1
    blocks = total // grain
    count = int(torch.randint(1, max(2, blocks), (1,), generator=generator))
    return ColumnSet.of_blocks(torch.randperm(blocks, generator=generator)[:count], total, grain)


class Dense:
    """All ranks' shards and inputs, as this rank can build them by itself, and the dense formulas on them."""

    def __init__(self, parallel: str, ranks: int, draw: int) -> None:
        self.parallel, self.ranks = parallel, ranks
        plan = plan_of(ranks)
        self.weights = [linear_of(parallel, float64_context(None, r, plan)).weight.detach() for r in range(ranks)]
        self.columns = [w.shape[1] for w in self.weights]
        self.kept = [kept_columns(columns, rank, draw) for rank, columns in enumerate(self.columns)]

    def x(self, rank: int, step: int = 0) -> Tensor:
        if self.parallel == "column":
            return randn(ROWS, WIDTH, seed=(step, 1))
        return randn(ROWS, self.columns[rank], seed=(step, rank, 2))

    def dy(self, rank: int, step: int = 0) -> Tensor:
        if self.parallel == "column":
            return randn(ROWS, self.weights[rank].shape[0], seed=(step, rank, 3))
        return randn(ROWS, WIDTH, seed=(step, 4))

    def out(self, rank: int) -> Tensor:
        def part(r: int) -> Tensor:
            ids = self.kept[r].ids
            return self.x(r)[:, ids] @ self.weights[r][:, ids].t()

        return part(rank) if self.parallel == "column" else sum(part(r) for r in range(self.ranks))

    def imputed(self, rank: int, full: Tensor, how: str, before: Tensor) -> Tensor:
        """Return a dense gradient with its missing columns filled."""
        ids = self.kept[rank].ids
        missing = self.kept[rank].rest.ids
        filled = full.clone()
        if how == "Zero":
            filled[:, missing] = 0
        if how == "Average":
            filled[:, missing] = full[:, ids].mean(1, keepdim=True)
        if how == "Same":
            filled[:, missing] = before[:, missing]
        return filled

    def dx(self, rank: int, how: str, step: int) -> Tensor:
        def part(r: int) -> Tensor:
            full = self.dy(r, step) @ self.weights[r]
            return self.imputed(r, full, how, self.dy(r, step - 1) @ self.weights[r])

        return part(rank) if self.parallel == "row" else sum(part(r) for r in range(self.ranks))

    def dw(self, rank: int, how: str, step: int) -> Tensor:
        full, before = (self.dy(rank, s).t() @ self.x(rank, s) for s in (step, step - 1))
        return self.imputed(rank, full, how, before)


def check_pruned(parallel: str, how: str, draw: int, group, rank: int, ranks: int) -> dict[str, float]:
    """Compare output, dX and dW of a pruned linear with the dense formula; before it, one step without pruning."""
    dense = Dense(parallel, ranks, draw)
    linear = linear_of(parallel, float64_context(group, rank, plan_of(ranks)))
    kept, memory = dense.kept[rank], Memory()
    every = ColumnSet(torch.arange(kept.total), kept.total)
    linear.partition = ColumnPartition(every, imputation=how, memory=memory)
    errors: dict[str, float] = {}
    for step in (0, 1):
        if step == 1:
            linear.partition = ColumnPartition(kept, kept.rest, imputation=how, memory=memory)
        x = dense.x(rank, 0 if step == 1 else -1).requires_grad_()
        linear.weight.grad = None
        out = linear(x)
        out.backward(dense.dy(rank, 0 if step == 1 else -1))
        if step == 1:
            assert linear.weight.grad is not None
            errors["output"] = error(out, dense.out(rank))
            errors["dX"] = error(x.grad, dense.dx(rank, how, 0))
            errors["dW"] = error(linear.weight.grad, dense.dw(rank, how, 0))
    return errors


def check_bit_equal(parallel: str, group, rank: int, ranks: int) -> dict[str, float]:
    """Compare gamma = 0 through the column assigner with the plain layer: 0.0 where every bit is the same."""
    dense = Dense(parallel, ranks, 0)
    results = []
    for balanced in (False, True):
        linear = linear_of(parallel, float64_context(group, rank, plan_of(ranks)))
        if balanced:
            total = dense.columns[rank]
            linear.partition = ColumnPartition(ColumnSet(torch.arange(total), total))
        x = dense.x(rank).requires_grad_()
        out = linear(x)
        out.backward(dense.dy(rank))
        results.append((out, x.grad, linear.weight.grad))
    return {name: float(not torch.equal(a, b)) for name, a, b in zip(("output", "dX", "dW"), *results, strict=True)}


def costs(ranks: int) -> Costs:
    return Costs((), ((),) * ranks, (1,) * ranks)


def migrations(linear, senders: dict[int, int], primitive: str, ranks: int) -> tuple[Migration, ...]:
    """Return the migrations of the last columns of some ranks to the others, the first twice as fast."""
    receivers = [(r, 2.0 if i == 0 else 1.0) for i, r in enumerate(r for r in range(ranks) if r not in senders)]
    every = pieces(senders, receivers)
    found = []
    for sender, count in senders.items():
        outputs = linear.tp.unit_plan.counts("ffn")[sender] if linear.parallel == "column" else WIDTH
        ids = torch.arange(WIDTH - count, WIDTH) if linear.parallel == "column" else None
        found.append(Migration(sender, outputs, tuple(p for p in every if p.sender == sender), primitive, ids))
    return tuple(found)


def check_migrated(
    parallel: str, primitive: str, senders: dict[int, int], group, rank: int, ranks: int, pruned: int = 0
) -> dict[str, float]:
    """Compare output, dX and dW under migration with the dense formula on all columns but the senders' first ones."""
    dense = Dense(parallel, ranks, 0)
    linear = linear_of(parallel, float64_context(group, rank, plan_of(ranks)))
    total = dense.columns[rank]
    every = ColumnSet(torch.arange(total), total)
    moved = migrations(linear, senders, primitive, ranks)
    linear.partition = ColumnPartition(every, migrations=moved)
    if rank in senders:  # as SEMI does: some columns pruned, some given away, the rest kept
        first_given = total - senders[rank]
        gone = every.part(0, pruned) if pruned else None
        linear.partition = ColumnPartition(every.part(pruned, first_given), gone, every.part(first_given, total), moved)
    firsts = [pruned if r in senders else 0 for r in range(ranks)]
    dense.kept = [ColumnSet(torch.arange(f, n), n) for f, n in zip(firsts, dense.columns, strict=True)]
    x = dense.x(rank).requires_grad_()
    out = linear(x)
    out.backward(dense.dy(rank))
    return {
        "output": error(out, dense.out(rank)),
        "dX": error(x.grad, dense.dx(rank, "Zero", 0)),
        "dW": error(linear.weight.grad, dense.dw(rank, "Zero", 0)),
    }


class Stack(nn.Module):
    """Attention and a feed-forward network, without the norms that compute in fp32."""

    def __init__(self, tp) -> None:
        super().__init__()
        self.attention = ParallelAttention(tp, WIDTH, HEADS, name="a", seed=SEED)
        self.mlp = ParallelMLP(tp, WIDTH, UNITS, name="m", seed=SEED)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x)
        return x + self.mlp(x)


def ten_steps(plan: WorkPlan | None, policy: BalancingSettings, group, rank: int, ranks: int) -> dict[str, Tensor]:
    """Return the parameters after ten optimizer steps under a plan."""
    tp = float64_context(group, rank, plan_of(ranks))
    stack = Stack(tp).double()
    optimizer = EagerAdamW(stack.parameters(), lr=1e-2, weight_decay=0.1)
    assigner = ColumnAssigner(stack, tp)
    if plan is not None:
        assigner.apply(plan, Costs((), ((),) * ranks, (2,) * ranks), policy)
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        stack(randn(2, 5, WIDTH, seed=(step, 9))).square().mean().backward()
        optimizer.step()
    return {name: p.detach() for name, p in stack.named_parameters()}


def check_ten_steps(primitive: str, senders: tuple[int, ...], group, rank: int, ranks: int) -> dict[str, float]:
    """Compare ten steps under migration, by way of the column assigner, with ten steps without."""
    counts = plan_of(ranks).counts
    size = WIDTH // HEADS
    reductions = []
    for sender in senders:  # classes: qkv, proj, fc1, fc2, in the model's order
        columns = (WIDTH, counts("heads")[sender] * size, WIDTH, counts("ffn")[sender])
        reductions.append((sender, tuple(WorkReduction(0, max(1, int(0.6 * n))) for n in columns)))
    receivers = tuple((r, 1.0 + 0.3 * r) for r in range(ranks) if r not in senders)
    plan = WorkPlan(1, reductions=tuple(reductions), receivers=receivers, primitive=primitive)
    policy = BalancingSettings(strategy="MIG")
    with_it, without = (ten_steps(p, policy, group, rank, ranks) for p in (plan, None))
    return {name: error(with_it[name], without[name]) for name in without}


def check_paired(group, rank: int, ranks: int) -> dict[str, float]:
    """Compare a network without some of its hidden units with the dense formula on the others."""
    tp = float64_context(group, rank, plan_of(ranks))
    mlp = ParallelMLP(tp, WIDTH, UNITS, name="m", seed=SEED).double()
    policy = BalancingSettings(strategy="ZERO", zero={"paired_units": True, "grain": 1, "selection": "Rd"})
    columns = [plan_of(ranks).counts("ffn")[r] for r in range(ranks)]
    reductions = tuple((r, (WorkReduction(12), WorkReduction(columns[r] // 2))) for r in range(ranks))
    ColumnAssigner(mlp, tp).apply(WorkPlan(1, reductions=reductions), costs(ranks), policy)
    units = mlp.fc1.partition.units.ids
    x = randn(ROWS, WIDTH, seed=(1, 6)).requires_grad_()
    mlp(x[None]).square().sum().backward()
    w1, b1, w2 = (p.detach().clone().requires_grad_() for p in (mlp.fc1.weight, mlp.fc1.bias, mlp.fc2.weight))
    y = x.detach().clone().requires_grad_()
    hidden = torch.nn.functional.gelu(y @ w1[units].t() + b1[units]) @ w2[:, units].t()
    total = hidden.detach().clone()
    if group is not None:
        dist.all_reduce(total)
    total += mlp.fc2.bias.detach()
    hidden.backward(2 * total)
    dx = y.grad.clone()
    if group is not None:
        dist.all_reduce(dx)
    return {
        "left out": float(len(units) != columns[rank] - columns[rank] // 2),
        "dX": error(x.grad, dx),
        "dW fc1": error(mlp.fc1.weight.grad, w1.grad),
        "db fc1": error(mlp.fc1.bias.grad, b1.grad),
        "dW fc2": error(mlp.fc2.weight.grad, w2.grad),
    }


def main(rank: int, ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    group = None
    if ranks > 1:
        store = dist.FileStore(str(folder / "store"), ranks)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=180))
        group = dist.group.WORLD
    results: dict[str, dict[str, float]] = {}
    for parallel in ("column", "row"):
        results[f"bit-equal {parallel}"] = check_bit_equal(parallel, group, rank, ranks)
        for how in ("Zero", "Average", "Same"):
            for draw in range(4):
                name = f"pruned {parallel} {how} {draw}"
                results[name] = check_pruned(parallel, how, draw, group, rank, ranks)
        for primitive in ("broadcastReduce", "scatterGather") if ranks > 1 else ():
            for name, senders in sender_cases(ranks).items():
                key = f"{parallel} {primitive} {name}"
                results[f"migrated {key}"] = check_migrated(parallel, primitive, senders, group, rank, ranks)
                results[f"both {key}"] = check_migrated(parallel, primitive, senders, group, rank, ranks, pruned=3)
    for primitive in ("broadcastReduce", "scatterGather") if ranks > 1 else ():
        for name, senders in sender_cases(ranks).items():
            key = f"ten steps {primitive} {name}"
            results[key] = check_ten_steps(primitive, tuple(sorted(senders)), group, rank, ranks)
    results["paired"] = check_paired(group, rank, ranks)
    (folder / f"rank{rank}.json").write_text(json.dumps(results))
    if group is not None:
        dist.barrier()
        dist.destroy_process_group()


def sender_cases(ranks: int) -> dict[str, dict[int, int]]:
    """Return who gives how many columns away; 5 and 7 leave remainders, 1 is less than there are receivers."""
    cases = {"one": {ranks - 1: 5}, "one column": {0: 1}}
    if ranks > 2:
        cases["several"] = {0: 7, ranks - 1: 5}
    return cases


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
