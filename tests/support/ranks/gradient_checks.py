"""One rank of the gang behind test_gradients_gang.py: norms and means of gradients that ranks hold, their replicas.

Called as: gradient_checks.py RANK RANKS FOLDER.
"""

import json
import math
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from heterotp_trainer.boundary.agreement import differing_replicas
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import NullClock
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.gradients import average_replicas, gradient_norm
from heterotp_trainer.tensor_parallel.unit_spec import ShardSpec, mark_sharded
from torch import nn

SPEC = ShardSpec("ffn", 0, 1, 6)
BROKEN = 1  # the rank that alone has a value that is not finite


def with_gradient(value: float | None, size: int = 2, sharded: bool = False) -> nn.Parameter:
    parameter = nn.Parameter(torch.zeros(size))
    if value is not None:
        parameter.grad = torch.full((size,), value)
    return mark_sharded(parameter, SPEC) if sharded else parameter


def norms(rank: int, tp: TPContext) -> dict[str, float]:
    """Return the norm where rank i owns i units with a gradient of 2, beside two replicated values of 3."""

    def norm(unit: float = 2.0, shared: float = 3.0, loss: float = 1.0) -> float:
        return gradient_norm([with_gradient(unit, rank, True), with_gradient(shared)], tp, torch.tensor(loss))

    found = {"whole": norm()}
    for broken in (math.nan, math.inf):
        for part in ("unit", "shared", "loss"):
            found[f"{part} {broken}"] = norm(**({part: broken} if rank == BROKEN else {}))
    return found


def means(rank: int, tp: TPContext) -> list[list[float] | None]:
    """Return what becomes of gradients that all ranks, only rank 0, all but rank 0, and no rank have."""
    held = [float(rank), 3.0 if rank == 0 else None, None if rank == 0 else 3.0, None]
    parameters = [with_gradient(value, size + 1) for size, value in enumerate(held)]
    parameters.append(nn.Parameter(torch.zeros(2), requires_grad=False))
    average_replicas(parameters, tp)
    return [None if each.grad is None else each.grad.tolist() for each in parameters]


def distances(rank: int, tp: TPContext) -> list[list[float]]:
    """Return what is measured where rank 2 alone has another gradient, and where no rank has one."""
    parameters = [with_gradient(6.0 if rank == 2 else 3.0, 4), with_gradient(None), with_gradient(1.0, sharded=True)]
    assert average_replicas(parameters, tp).tolist() == []
    parameters[0] = with_gradient(6.0 if rank == 2 else 3.0, 4)
    return average_replicas(parameters, tp, measure=True).tolist()


def differing(rank: int, tp: TPContext, unlike: bool) -> dict[str, list[int]]:
    """Return which tensors differ where rank 1 rounds otherwise, and rank 2 holds another value."""
    same = torch.linspace(1, 2, 100)
    tensors = {"same": same, "rounded": same * (1 + 1e-5 * (rank == 1)), "other": same * (1 + 0.05 * (rank == 2))}
    return differing_replicas(tensors, tp.group, tp.ranks, unlike=unlike)


def main(rank: int, ranks: int, folder: Path) -> None:
    store = dist.FileStore(str(folder / "store"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=120))
    device = Device(torch.device("cpu"), "cpu")
    tp = TPContext(dist.group.WORLD, rank, ranks, device, NullClock(), UnitPlan.empty(ranks))
    shard = with_gradient(float(rank), sharded=True)
    average_replicas([shard], tp)
    result = {"norms": norms(rank, tp), "means": means(rank, tp), "shard": shard.grad.tolist()}
    result["distances"] = distances(rank, tp)
    result["differing"] = {str(unlike): differing(rank, tp, unlike) for unlike in (False, True)}
    (folder / f"rank{rank}.json").write_text(json.dumps(result))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
