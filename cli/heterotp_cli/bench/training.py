"""One trial: a real training on the digits, with the layers of all eight ranks in one process.

The layers are the trainer's own, each rank's with its own shard and its own choice of columns. What all-reduces
do in a gang, addition does here: the ranks' parts of one block are summed, and autograd sums their input gradients.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from heterotp_api.policy import BalancingSettings
from heterotp_api.training import ModelShape, Training
from heterotp_trainer.data import Dataset, batches, load_dataset
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import NullClock
from heterotp_trainer.model.vit import Block, VisionTransformer
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.grains import blocks, grain_for
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.plans.work_plan import WorkPlan
from heterotp_trainer.plans.work_reduction import WorkReduction
from heterotp_trainer.rebalancing.column_assigner import ColumnAssigner
from heterotp_trainer.tensor_parallel.attention import ParallelAttention
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.linear import RowParallelLinear
from heterotp_trainer.tensor_parallel.mlp import ParallelMLP
from heterotp_trainer.training.optimizer import EagerAdamW
from heterotp_trainer.training.schedules import learning_rate, set_learning_rate
from torch import Tensor, nn

from heterotp_cli.bench.emulation import RANKS
from heterotp_cli.bench.scenarios import KINDS, Shares

SHAPE = ModelShape(hidden_size=64, depth=2, heads=16, patch_size=4, ffn_ratio=4)
TRAINING = Training(learning_rate=0.003, schedule="cosine", warmup_iterations=20, batch_size=64)
GRAIN = 16


def contexts(ranks: int, shape: ModelShape) -> list[TPContext]:
    """Return every rank's view of an even gang that needs no collectives."""
    plan = UnitPlan.even(ranks, shape.heads, shape.ffn_units)
    device = Device(torch.device("cpu"), "cpu")
    return [TPContext(None, rank, ranks, device, NullClock(), plan) for rank in range(ranks)]


class AllRanksBlock(nn.Module):
    """A transformer block as the sum of all ranks' parts of it."""

    def __init__(self, block: Block, every: list[TPContext], shape: ModelShape, *, name: str, seed: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = block.norm1, block.norm2
        width = shape.hidden_size
        self.attentions = nn.ModuleList(
            ParallelAttention(tp, width, shape.heads, name=f"{name}.attention", seed=seed) for tp in every
        )
        units = shape.ffn_units
        self.mlps = nn.ModuleList(ParallelMLP(tp, width, units, name=f"{name}.mlp", seed=seed) for tp in every)
        for part in [*self.attentions, *self.mlps]:
            _count_bias_once(part)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        x = x + _sum(self.attentions, self.norm1(x))
        return x + _sum(self.mlps, self.norm2(x))

    def part(self, rank: int) -> nn.ModuleList:
        """Return one rank's layers."""
        return nn.ModuleList([self.attentions[rank], self.mlps[rank]])


def _sum(parts: nn.ModuleList, x: Tensor) -> Tensor:
    return torch.stack([part(x) for part in parts]).sum(0)


def _count_bias_once(part: nn.Module) -> None:
    """Leave the replicated bias of a row-parallel linear to rank 0."""
    for module in part.modules():
        if isinstance(module, RowParallelLinear) and module.tp.rank:
            module.bias = None


class AllRanks:
    """A vision transformer whose blocks are divided over ranks, and each rank's column partitions."""

    def __init__(self, data: Dataset, seed: int, ranks: int = RANKS, shape: ModelShape = SHAPE) -> None:
        alone, every = contexts(1, shape)[0], contexts(ranks, shape)
        side, channels, classes = data.image_size, data.channels, data.classes
        self.model = VisionTransformer(alone, shape, image_size=side, channels=channels, classes=classes, seed=seed)
        plain = [block for block in self.model.blocks if isinstance(block, Block)]
        blocks = [AllRanksBlock(b, every, shape, name=f"blocks.{i}", seed=seed) for i, b in enumerate(plain)]
        self.model.blocks = nn.ModuleList(blocks)
        self.assigner = [
            ColumnAssigner(nn.ModuleList(block.part(rank) for block in blocks), tp) for rank, tp in enumerate(every)
        ]
        self.costs = Costs(self.assigner[0].classes(), ((),) * ranks, (GRAIN,) * ranks)

    def choose(self, number: int, shares: Sequence[Shares], policy: BalancingSettings) -> None:
        """Set the share that each rank prunes of each kind from now on."""
        reductions = [(rank, self._taken(rank, each)) for rank, each in enumerate(shares) if any(each)]
        for assigner in self.assigner:
            assigner.apply(WorkPlan(number, reductions=tuple(reductions)), self.costs, policy)

    def _taken(self, rank: int, shares: Shares) -> tuple[WorkReduction, ...]:
        by_kind = dict(zip(KINDS, shares, strict=True))
        out = []
        for linears in self.costs.classes:
            columns = linears.columns[rank]
            wanted = by_kind[linears.name.rpartition(".")[2]] * columns
            out.append(WorkReduction(blocks(wanted, grain_for(None, GRAIN, columns))))
        return tuple(out)


def run_trial(trial: dict[str, Any]) -> dict[str, float]:
    """Train for as many epochs as the trial has shares; return loss and accuracy on the held-out images."""
    torch.set_num_threads(1)
    data = load_dataset("digits", None, 0)
    gang = AllRanks(data, trial["seed"])
    policy = BalancingSettings.model_validate({"strategy": "ZERO", "zero": trial["zero"]})
    optimizer = EagerAdamW(gang.model.parameters(), lr=TRAINING.learning_rate, weight_decay=0.0, fused=True)
    for assigner in gang.assigner:
        assigner.follow(policy)
    for epoch, shares in enumerate(trial["shares"]):
        for assigner in gang.assigner:
            assigner.refresh()
        gang.choose(epoch + 1, shares, policy)
        _epoch(gang, optimizer, data, trial, epoch)
    return evaluate(gang.model, data)


def _epoch(gang: AllRanks, optimizer: EagerAdamW, data: Dataset, trial: dict[str, Any], epoch: int) -> None:
    per_epoch = len(data.train_labels) // TRAINING.batch_size
    for number, (images, labels) in enumerate(batches(data, TRAINING.batch_size, trial["seed"], epoch)):
        iteration, total = epoch * per_epoch + number, len(trial["shares"]) * per_epoch
        set_learning_rate(optimizer, learning_rate(TRAINING, iteration, total))
        optimizer.zero_grad(set_to_none=True)
        loss: Tensor = F.cross_entropy(gang.model(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        for assigner in gang.assigner:
            assigner.count_step()


@torch.no_grad()
def evaluate(model: VisionTransformer, data: Dataset) -> dict[str, float]:
    """Return loss and accuracy on the held-out images."""
    model.eval()
    logits = model(data.test_images)
    loss = float(F.cross_entropy(logits, data.test_labels))
    accuracy = float((logits.argmax(1) == data.test_labels).float().mean())
    return {"loss": loss, "accuracy": accuracy}
