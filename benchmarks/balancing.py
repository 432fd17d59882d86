"""Costs and savings of balancing on this machine.

    python benchmarks/balancing.py [--part pruning decide control memory] [--rounds 7]

pruning   gamma = 1/2 at the shapes of one of 8 ranks of ViT-1B (4,160 rows), on a real CPU (or CUDA device):
          saved seconds over the ideal half of the matmul time, per linear and in total, by grain (target >= 0.9)
decide    decide() on given histories: milliseconds at e = 8 and e = 1,024, per strategy (target <= 10 ms at 1,024)
control   share of the control step in an iteration, 8 emulated ranks at the paper's pace (target <= 0.5 %)
memory    resident memory of a rank after 2,000 iterations over that after 200, SEMI under a moving straggler
          (target: within 2 %)
"""

import argparse
import os
import sys
import time
from collections.abc import Callable

import gang
from gang import summary
from heterotp_trainer.launch.launcher import ALLOCATOR

PORT = 29440
ROWS, WIDTH, RANKS = 64 * 65, 2048, 8
SHAPES = {  # contraction columns, outputs of one rank
    "qkv": (WIDTH, 3 * WIDTH // RANKS),
    "proj": (WIDTH // RANKS, WIDTH),
    "fc1": (WIDTH, 4 * WIDTH // RANKS),
    "fc2": (4 * WIDTH // RANKS, WIDTH),
}
POINTS = (200, 2000)  # iterations at which memory is read


# -- pruning ----------------------------------------------------------------------------------------------


def pruning(rounds: int) -> None:
    """Print the time saved by pruning half of the columns; plain and pruned rounds alternate."""
    import torch

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    print(f"pruning: gamma 1/2, {ROWS} rows, {device}, {torch.get_num_threads()} threads; saved / ideal")
    for grain in (16, 64):
        plain_sum, pruned_sum, product_sum = [0.0] * rounds, [0.0] * rounds, [0.0] * rounds
        for name, (columns, outputs) in SHAPES.items():
            plain, pruned, products = measured(columns, outputs, grain, rounds, device)
            print(summary(f"{name} {grain}", [saved(*t) for t in zip(plain, pruned, products, strict=True)]))
            for sums, values in ((plain_sum, plain), (pruned_sum, pruned), (product_sum, products)):
                sums[:] = [a + b for a, b in zip(sums, values, strict=True)]
        every = [saved(*t) for t in zip(plain_sum, pruned_sum, product_sum, strict=True)]
        print(summary(f"all {grain}", every), "(target >= 0.9)", flush=True)


def saved(plain: float, pruned: float, products: float) -> float:
    """Return the saved time over half of the matmul time."""
    return (plain - pruned) / (products / 2)


def measured(columns: int, outputs: int, grain: int, rounds: int, device) -> tuple[list, list, list]:  # type: ignore[no-untyped-def,type-arg]
    """Return seconds per round of the plain layer, the pruned layer and the three products of the plain layer."""
    import torch
    from heterotp_trainer.devices.device import Device
    from heterotp_trainer.devices.phase_clock import NullClock
    from heterotp_trainer.plans.unit_plan import UnitPlan
    from heterotp_trainer.tensor_parallel.column_partition import ColumnPartition
    from heterotp_trainer.tensor_parallel.columns import ColumnSet
    from heterotp_trainer.tensor_parallel.context import TPContext
    from heterotp_trainer.tensor_parallel.linear import ColumnParallelLinear
    from heterotp_trainer.tensor_parallel.unit_spec import ShardSpec

    tp = TPContext(None, 0, 1, Device(device, device.type), NullClock(), UnitPlan.even(1, 1, outputs))
    layer = ColumnParallelLinear(tp, ShardSpec("ffn", 0, 1, outputs), columns, name="l", seed=0, bias=False).to(device)
    x = torch.randn(ROWS, columns, device=device, requires_grad=True)
    dy = torch.randn(ROWS, outputs, device=device)
    numbers = torch.randperm(columns // grain, device=device)[: columns // grain // 2]
    kept = ColumnSet.of_blocks(numbers, columns, grain)

    def run(partition: ColumnPartition | None) -> None:
        layer.partition = partition
        layer.weight.grad = x.grad = None
        layer(x).backward(dy)

    def products() -> None:
        w = layer.weight.detach()
        x.detach() @ w.t()
        dy @ w
        dy.t() @ x.detach()

    pruned = ColumnPartition(kept, kept.rest)
    return taken_turns([lambda: run(None), lambda: run(pruned), products], rounds, device)


def taken_turns(works: list[Callable[[], object]], rounds: int, device) -> tuple:  # type: ignore[no-untyped-def,type-arg]
    """Return the seconds of each work by round, after one warm-up round."""
    import torch

    seconds: list[list[float]] = [[] for _ in works]
    for number in range(rounds + 1):
        for work, times in zip(works, seconds, strict=True):
            started = time.perf_counter()
            work()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            if number:
                times.append(time.perf_counter() - started)
    return tuple(seconds)


# -- decide -----------------------------------------------------------------------------------------------


def decide_times(rounds: int) -> None:
    """Print the time of decide() with a new plan, and without a change."""
    from heterotp_api.policy import BalancingSettings
    from heterotp_trainer.balancing.decide import decide
    from heterotp_trainer.plans.work_plan import WorkPlan

    for ranks in (8, 1024):
        costs, history = world(ranks)
        print(f"decide() at e = {ranks}, a quarter of the ranks slow, milliseconds")
        for strategy in ("None", "ZERO", "MIG", "SEMI"):
            policy = BalancingSettings(strategy=strategy)
            empty = WorkPlan()
            fresh, idle = [], []
            for _ in range(rounds):
                started = time.perf_counter()
                plan = decide(history, policy, empty, costs)
                fresh.append((time.perf_counter() - started) * 1e3)
                started = time.perf_counter()
                decide(history, policy, plan, costs)
                idle.append((time.perf_counter() - started) * 1e3)
            print(summary(f"{strategy}", fresh), "planning anew")
            print(summary("", idle), "nothing new", flush=True)


def world(ranks: int):  # type: ignore[no-untyped-def]
    """Return costs and a full history of the given number of ranks."""
    import random

    from heterotp_trainer.balancing.history import History, Observation
    from heterotp_trainer.plans.costs import Costs
    from heterotp_trainer.plans.linears import Curve, Line, LinearClass, Link

    draw = random.Random(0)
    classes = tuple(
        LinearClass(name, "column" if name in ("qkv", "fc1") else "row", (columns,) * ranks, (out,) * ranks, ROWS, 24)
        for name, (columns, out) in SHAPES.items()
    )
    curves = tuple(Curve((0.0, float(c.columns[0])), (0.0, 1e-3)) for c in classes)
    line = Line(1e-5, 1e-10)
    costs = Costs(classes, (curves,) * ranks, (64,) * ranks, Link(line, line, line), 2)
    history = History(5)
    for _ in range(10):
        full = [(2.0 + rank % 7 if rank % 4 == 3 else 1.0) * draw.gauss(1, 0.01) for rank in range(ranks)]
        history.add(Observation.of(full, [0.01] * ranks, [0.1] * ranks, [0.2] * ranks))
    return costs, history


# -- control and memory -------------------------------------------------------------------------------------


def control(iterations: int = 40) -> None:
    """Print the share of the control step in an iteration at the paper's pace."""
    result = gang.run(__file__, ["--part", "control", "--iterations", str(iterations)], spec("emulated"), PORT)
    print(f"control step: share of an iteration, {RANKS} emulated ranks, ZERO deciding; %")
    print(summary("all", [100 * share for share in result]), "(target <= 0.5)", flush=True)


def memory(rounds: int) -> None:
    """Print the growth of resident memory."""
    result = gang.run(__file__, ["--part", "memory", "--iterations", str(POINTS[1])], spec("cpu"), PORT)
    print(f"memory: resident after {POINTS[1]} over {POINTS[0]} iterations, per rank; SEMI, a straggler that wanders")
    print(summary("ratio", [late / early for early, late in result]), "(target <= 1.02)", flush=True)


def spec(kind: str) -> dict:
    """Return a job of 8 emulated ranks at the paper's pace, or of 2 real ones."""
    from heterotp_cli.bench.emulation import VIT_1B

    device = VIT_1B.device(1.0) if kind == "emulated" else {"type": "cpu"}
    ranks = RANKS if kind == "emulated" else 2
    groups = [{"name": "a", "processesPerPod": ranks, "relativeSpeed": 1, "device": device}]
    return {"tensorParallelDegree": ranks, "workerGroups": groups, "training": {"initialShares": "even"}}


def rank(part: str, iterations: int) -> None:
    """Run one rank of a gang; rank 0 prints the measurements."""
    import torch
    from heterotp import Session
    from heterotp_api.control import ControlDocument
    from heterotp_api.training import ModelShape
    from heterotp_trainer.launch.json_messages import gather_json
    from heterotp_trainer.model.vit import Block
    from heterotp_trainer.training.optimizer import EagerAdamW
    from torch import nn

    torch.set_num_threads(1)
    session = Session.from_environment()
    tp = session.shard()
    stack = nn.Sequential(*(Block(tp, ModelShape(64, 2, 32, 1, 4), name=f"{i}", seed=0) for i in range(2)))
    session.watch(stack, EagerAdamW(stack.parameters()))
    batch = torch.randn(1, 130, 64, generator=torch.Generator().manual_seed(0))
    document = ControlDocument.model_validate_json(documents()[part])
    session.balancer.apply(document.balancing)
    session._injector.injections = document.injections
    resident = []
    for iteration in range(1, iterations + 1):
        stack.zero_grad(set_to_none=True)
        stack(batch).square().mean().backward()
        session.step()
        session.boundary(iteration, epoch=iteration // 25)
        if iteration in POINTS:
            resident.append(resident_bytes())
    every = gather_json(resident, list[int], tp.ranks, session.gang.control_group)
    session.finish()
    if session.environment.rank == 0:
        gang.print_result(every if part == "memory" else control_shares(session.environment.workdir))


def control_shares(workdir) -> list[float]:  # type: ignore[no-untyped-def]
    """Return the share of the control phase in every measured iteration, from the history of rank 0."""
    import json

    lines = [json.loads(line) for line in (workdir / "history.jsonl").read_text().splitlines()]
    return [line["ranks"][0]["control"] / line["iterationSeconds"] for line in lines if line["measured"]]


def documents() -> dict[str, str]:
    """Return the control document of the ranks, by part."""
    import json

    wander = {"uid": "a", "ranks": [0, 1], "slowdown": 3, "pattern": {"roundRobin": {"every": {"iterations": 50}}}}
    zero = {
        "generation": 1,
        "balancing": {"strategy": "ZERO"},
        "injections": [{"uid": "a", "ranks": [2], "slowdown": 4}],
    }
    semi = {"generation": 1, "balancing": {"strategy": "SEMI", "semi": {"timeTolerance": 1}}, "injections": [wander]}
    return {"control": json.dumps(zero), "memory": json.dumps(semi)}


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Run the selected parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", default=["pruning", "decide", "control", "memory"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank:
        rank(arguments.part[0], arguments.iterations)
        return
    if not ALLOCATOR.keys() <= os.environ.keys():  # restart with the environment that the launcher sets for ranks
        os.execve(sys.executable, [sys.executable, *sys.argv], ALLOCATOR | dict(os.environ))
    parts: dict[str, Callable[[int], None]] = {"pruning": pruning, "decide": decide_times, "memory": memory}
    for name in arguments.part:
        parts[name](arguments.rounds) if name != "control" else control(arguments.iterations)


if __name__ == "__main__":
    main()
