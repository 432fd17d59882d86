"""The gang of reshard.py: a stack of networks or ViT blocks under phases of (policy, slow-downs, iterations)."""

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict

import gang

RANKS, WIDTH, ROWS, DEPTH, HEADS, UNITS = 8, 64, (2, 8), 2, 32, 1024
SECONDS = 1.5  # of a homogeneous iteration
LATENCY = 0.002
BYTES_PER_SECOND = 2e6  # so that a move of these small stacks takes what one of ViT-1B takes, relative to an iteration
REAL = 2  # real CPU ranks: as many as this machine has cores
PORT = 29520


def operations(model: str) -> float:
    """Return the operations of all prunable products of one iteration."""
    attention = 4 * WIDTH * WIDTH if model == "vit" else 0
    return 6.0 * ROWS[0] * ROWS[1] * (2 * WIDTH * UNITS + attention) * DEPTH


def spec(model: str, share: float, speeds: Sequence[float] = (), kind: str = "emulated") -> dict:
    """Return a job of 8 equal emulated ranks, or of real ones; speeds: declared relative speeds."""
    device = {"type": "cpu"}
    if kind == "emulated":
        device = {
            "type": "emulated",
            "teraflops": operations(model) / RANKS / (share * SECONDS) / 1e12,
            "fixedSeconds": (1 - share) * SECONDS,
            "linkLatencySeconds": LATENCY,
            "linkBytesPerSecond": BYTES_PER_SECOND,
        }
    ranks = RANKS if kind == "emulated" else REAL
    given = list(speeds) or [1.0] * ranks
    groups = [{"name": f"r{n}", "relativeSpeed": speed, "device": device} for n, speed in enumerate(given)]
    return {"tensorParallelDegree": ranks, "workerGroups": groups, "training": {"initialShares": "declared"}}


def document(generation: int, policy: dict, chis: Sequence[float]) -> str:
    """Return a control document with a policy and slow-downs of the first ranks."""
    slow = [{"uid": f"{n}", "ranks": [n], "slowdown": chi} for n, chi in enumerate(chis) if chi > 1]
    return json.dumps({"generation": generation, "balancing": policy, "injections": slow})


# -- a rank -----------------------------------------------------------------------------------------------------


def rank(model: str, phases: list[dict]) -> None:
    """Run one rank through phases of (policy, chis, iterations); rank 0 reports the time of every iteration."""
    import torch
    from heterotp import Session
    from heterotp_api.control import ControlDocument
    from heterotp_api.training import ModelShape
    from heterotp_trainer.model.vit import Block
    from heterotp_trainer.tensor_parallel.mlp import ParallelMLP
    from heterotp_trainer.training.optimizer import EagerAdamW
    from torch import nn

    torch.set_num_threads(1)
    session = Session.from_environment()
    real = not session.device.emulated
    width, rows = (256, (16, 33)) if real else (WIDTH, ROWS)
    tp = session.shard(probe=(rows[0] * rows[1], width, max(1, UNITS // session.environment.ranks)))
    shape = ModelShape(width, DEPTH, HEADS, 1, UNITS // width)
    if model == "vit":
        stack: nn.Module = nn.Sequential(*(Block(tp, shape, name=f"b.{i}", seed=0) for i in range(DEPTH)))
    else:
        stack = nn.Sequential(*(ParallelMLP(tp, width, UNITS, name=f"b.{i}", seed=0) for i in range(DEPTH)))
    session.watch(stack, EagerAdamW(stack.parameters()))
    batch = torch.randn(*rows, width, generator=torch.Generator().manual_seed(0))
    iteration, records = 0, []
    for number, phase in enumerate(phases):
        control = ControlDocument.model_validate_json(document(number + 1, phase["policy"], phase["chis"]))
        session.balancer.apply(control.balancing)
        session._injector.injections = control.injections
        seconds, plans = [], []
        for _ in range(phase["iterations"]):
            iteration += 1
            started = time.perf_counter()
            stack.zero_grad(set_to_none=True)
            stack(batch).square().mean().backward()
            session.step()
            session.boundary(iteration)
            seconds.append(time.perf_counter() - started)
            plans.append(session.tp.unit_plan.hash)
        records.append({"seconds": seconds, "plans": plans, **facts(session)})
    session.finish()
    if session.environment.rank == 0:
        gang.print_result(records)


def facts(session) -> dict:  # type: ignore[no-untyped-def]
    """Return what a phase ended with."""
    run_status, balancer = session.reporter.run_status, session.balancer
    status = run_status.status()
    return {
        "costs": [vars(cost) for cost in run_status.costs()],
        "moved": [status.moves, status.moved_seconds],
        "deleted": statistics.fmean(each.pruned for each in run_status.effects) if run_status.effects else 0.0,
        "calibration": asdict(balancer.costs),
        "status": json.loads(status.model_dump_json(by_alias=True)),
        "heads": balancer.tp.unit_plan.counts("heads"),
        "ffn": balancer.tp.unit_plan.counts("ffn"),
        "reason": balancer.plan.reason,
    }


def run(model: str, phases: list[dict], job: dict) -> list[dict]:
    """Run a gang through the phases."""
    return gang.run(__file__, ["--model", model, "--phases", json.dumps(phases)], job, PORT)  # type: ignore[no-any-return]


def main() -> None:
    """Run one rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="vit")
    parser.add_argument("--phases", default="[]")
    parser.add_argument("--rank", action="store_true")
    arguments = parser.parse_args()
    rank(arguments.model, json.loads(arguments.phases))


if __name__ == "__main__":
    main()
