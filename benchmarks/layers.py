"""Our tensor-parallel ViT blocks against torch.distributed.tensor's parallelize_module, on gloo and CPU.

Both run the same blocks (forward + backward, no optimizer) in the same processes and alternate by round, so that load
on the machine affects both. Printed per e: seconds per iteration of each and the ratio ours / DTensor over rounds.

    python benchmarks/layers.py [--ranks 2 4] [--rounds 12]
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from gang import summary
from heterotp_api.training import ModelShape
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import PhaseClock
from heterotp_trainer.model.vit import Block
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.tensor_parallel.context import TPContext
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

TARGETS = {2: 0.9, 4: 0.75}
Step = Callable[[], object]


class PlainBlock(nn.Module):
    """The same block in plain torch; QKV rows are head-major, so that a contiguous shard consists of whole heads."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        width = shape.hidden_size
        self.head_size = shape.head_size
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, shape.ffn_units), nn.Linear(shape.ffn_units, width)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        qkv = self.qkv(self.norm1(x)).view(*x.shape[:2], -1, 3, self.head_size)
        query, key, value = (t.transpose(1, 2) for t in qkv.unbind(3))
        mixed = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        x = x + self.proj(mixed)
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


def _ours(shape: ModelShape, rank: int, ranks: int) -> nn.Module:
    plan = UnitPlan.even(ranks, shape.heads, shape.ffn_units)
    device = Device(torch.device("cpu"), "cpu")
    tp = TPContext(dist.group.WORLD, rank, ranks, device, PhaseClock(), plan)
    return nn.Sequential(*(Block(tp, shape, name=f"blocks.{i}", seed=0) for i in range(shape.depth)))


def _dtensor(shape: ModelShape, ranks: int) -> nn.Module:
    mesh = init_device_mesh("cpu", (ranks,))
    styles = {"qkv": ColwiseParallel, "proj": RowwiseParallel, "fc1": ColwiseParallel, "fc2": RowwiseParallel}
    blocks = [PlainBlock(shape) for _ in range(shape.depth)]
    for block in blocks:
        parallelize_module(block, mesh, {name: style() for name, style in styles.items()})
    return nn.Sequential(*blocks)


def _iterate(model: nn.Module, x: Tensor) -> None:
    model.zero_grad(set_to_none=True)
    model(x).square().mean().backward()


def _seconds(step: Step, repeat: int) -> float:
    dist.barrier()
    start = time.perf_counter()
    for _ in range(repeat):
        step()
    dist.barrier()
    return (time.perf_counter() - start) / repeat


def _rank(rank: int, ranks: int, folder: str, args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    shape = ModelShape(args.width, args.depth, args.heads, 4, 4)
    x = torch.randn(args.batch, args.tokens, args.width, generator=torch.Generator().manual_seed(0))
    x.requires_grad_()
    ours, theirs = _ours(shape, rank, ranks), _dtensor(shape, ranks)
    for model in (ours, theirs):
        _seconds(lambda model=model: _iterate(model, x), 3)
    pairs = []
    for number in range(args.rounds):
        order = (ours, theirs) if number % 2 == 0 else (theirs, ours)
        seconds = {model: _seconds(lambda model=model: _iterate(model, x), args.repeat) for model in order}
        pairs.append((seconds[ours], seconds[theirs]))
    if rank == 0:
        (Path(folder) / "pairs.json").write_text(json.dumps(pairs))
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    """Run the comparison for every selected e."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    options = {"rounds": 12, "repeat": 5, "width": 128, "depth": 4, "heads": 16, "batch": 64, "tokens": 17}
    for name, value in options.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    for ranks in args.ranks:
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(_rank, (ranks, folder, args), nprocs=ranks)
            pairs = json.loads((Path(folder) / "pairs.json").read_text())
        sizes = f"width {args.width}, depth {args.depth}, batch {args.batch}, tokens {args.tokens}"
        print(f"e={ranks} ({sizes}; torch {torch.__version__})")
        print(summary("ours", [a for a, _ in pairs], " s"))
        print(summary("DTensor", [b for _, b in pairs], " s"))
        print(summary("ratio", [a / b for a, b in pairs]), f" (target <= {TARGETS.get(ranks, '-')})", flush=True)


if __name__ == "__main__":
    main()
