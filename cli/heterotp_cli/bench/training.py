"""A real training with the layers of all eight ranks in one process.

The layers are the trainer's own, each rank's with its own shard and its own choice of columns. What all-reduces
do in a gang, addition does here: the ranks' parts of one block are summed, and autograd sums their input gradients.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from heterotp_api.policy import BalancingSettings
from heterotp_api.strategy_blocks import Zero
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
from heterotp_trainer.rebalancing.column_selection import draw_period
from heterotp_trainer.tensor_parallel.attention import ParallelAttention
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.linear import RowParallelLinear
from heterotp_trainer.tensor_parallel.mlp import ParallelMLP
from heterotp_trainer.training.optimizer import EagerAdamW
from heterotp_trainer.training.schedules import learning_rate, set_learning_rate
from torch import Tensor, nn

from heterotp_cli.bench.emulation import FFN_RATIO, RANKS, SHAPES, VIT_1B
from heterotp_cli.bench.scenarios import KINDS, Shares


def shape_of(model: str) -> ModelShape:
    """Return the shape of the model that is trained in the place of one of the paper's."""
    width, depth, heads = SHAPES[model]
    return ModelShape(hidden_size=width, depth=depth, heads=heads, patch_size=4, ffn_ratio=FFN_RATIO)


SHAPE = shape_of(VIT_1B.name)
TRAINING = Training(learning_rate=0.003, schedule="cosine", warmup_iterations=20, batch_size=64)
GRAIN = 16
EVALUATED = 512  # images at once


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
        self.settings = Zero()
        self.costs = Costs(self.assigner[0].classes(), ((),) * ranks, (GRAIN,) * ranks)

    def choose(self, number: int, shares: Sequence[Shares], policy: BalancingSettings, period: int = 0) -> None:
        """Set the share that each rank prunes of each kind from now on; period: see ColumnAssigner.redraw."""
        reductions = [(rank, self._taken(rank, each)) for rank, each in enumerate(shares) if any(each)]
        for assigner in self.assigner:
            assigner.apply(WorkPlan(number, reductions=tuple(reductions)), self.costs, policy, period)

    def step(self, iteration: int, epoch: int) -> None:
        """Do what a boundary does with columns: count the step, and draw those that are pruned at random anew."""
        for assigner in self.assigner:
            assigner.count_step()
            assigner.redraw(draw_period(self.settings, iteration, epoch))

    def _taken(self, rank: int, shares: Shares) -> tuple[WorkReduction, ...]:
        by_kind = dict(zip(KINDS, shares, strict=True))
        out = []
        for linears in self.costs.classes:
            columns = linears.columns[rank]
            wanted = by_kind[linears.name.rpartition(".")[2]] * columns
            out.append(WorkReduction(blocks(wanted, grain_for(None, GRAIN, columns))))
        return tuple(out)


@dataclass(frozen=True)
class Setting:
    """What is trained, how, and what it prunes."""

    shape: ModelShape
    training: Training
    seed: int
    zero: dict[str, Any]
    shares: tuple[tuple[Shares, ...], ...]  # [epoch][rank]: a training has as many epochs
    ranks: int = RANKS

    @property
    def policy(self) -> BalancingSettings:
        """The policy whose selection and imputation are trained."""
        return BalancingSettings.model_validate({"strategy": "ZERO", "zero": self.zero})


class Course:
    """A training, epoch by epoch; its state can be kept between two epochs."""

    def __init__(self, setting: Setting, data: Dataset) -> None:
        self.setting, self.data, self.epoch = setting, data, 0
        self.gang = AllRanks(data, setting.seed, setting.ranks, setting.shape)
        self.optimizer = optimizer_of(self.gang.model, setting.training)
        self._policy = setting.policy
        self.gang.settings = self._policy.pruning
        for assigner in self.gang.assigner:
            assigner.follow(self._policy)
        self.per_epoch = len(data.train_labels) // setting.training.batch_size

    @property
    def ended(self) -> bool:
        """Whether all epochs were trained."""
        return self.epoch == len(self.setting.shares)

    def run_epoch(self) -> None:
        """Train one epoch with its shares."""
        gang, epoch, setting = self.gang, self.epoch, self.setting
        for assigner in gang.assigner:
            assigner.refresh()
        period = draw_period(gang.settings, epoch * self.per_epoch, epoch)
        gang.choose(epoch + 1, setting.shares[epoch], self._policy, period)
        every = batches(self.data, setting.training.batch_size, setting.seed, epoch)
        for iteration, (images, labels) in enumerate(every, start=epoch * self.per_epoch):
            self.set_learning_rate(iteration)
            update(gang.model, self.optimizer, images, labels)
            gang.step(iteration + 1, epoch)
        self.epoch += 1

    def set_learning_rate(self, iteration: int) -> None:
        """Set the schedule's rate of an iteration."""
        total = len(self.setting.shares) * self.per_epoch
        set_learning_rate(self.optimizer, learning_rate(self.setting.training, iteration, total))

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors that the next epoch depends on, by name."""
        found = {f"model/{name}": tensor for name, tensor in self.gang.model.state_dict().items()}
        for number, kept in self.optimizer.state_dict()["state"].items():
            found |= {f"optimizer/{number}/{key}": tensor for key, tensor in kept.items()}
        for rank, assigner in enumerate(self.gang.assigner):
            slots = [slot for slot in assigner.slots() if slot.tensor is not None]
            found |= {f"columns/{rank}/{slot.name}": slot.tensor for slot in slots if slot.tensor is not None}
        return found

    @property
    def counts(self) -> list[list[int]]:
        """Of importance, by rank."""
        return [assigner.counts for assigner in self.gang.assigner]

    def resume(self, epoch: int, counts: Sequence[Sequence[int]], tensors: dict[str, Tensor]) -> None:
        """Go on from what was kept after so many epochs."""
        self.epoch = epoch
        self.gang.model.load_state_dict(_below(tensors, "model"))
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in _below(tensors, "optimizer").items():
            number, _, key = name.partition("/")
            state.setdefault(int(number), {})[key] = tensor
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})
        for rank, (assigner, each) in enumerate(zip(self.gang.assigner, counts, strict=True)):
            assigner.resume(each)
            kept = _below(tensors, f"columns/{rank}")
            for slot in assigner.slots():
                if slot.name in kept:
                    slot.put(kept[slot.name])


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin so, by the rest of their names."""
    return {n.removeprefix(f"{prefix}/"): tensor for n, tensor in tensors.items() if n.startswith(f"{prefix}/")}


def optimizer_of(model: nn.Module, training: Training) -> EagerAdamW:
    """Return the optimizer of all trainings here, in one process or in a gang."""
    return EagerAdamW(model.parameters(), lr=training.learning_rate, weight_decay=0.0, fused=True)


def loss_of(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Return the loss of a batch, whose gradients are added."""
    loss: Tensor = F.cross_entropy(model(images), labels)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def update(model: nn.Module, optimizer: EagerAdamW, images: Tensor, labels: Tensor) -> float:
    """Do one optimizer step; return the loss before it."""
    optimizer.zero_grad(set_to_none=True)
    loss = loss_of(model, images, labels)
    optimizer.step()
    return float(loss)


def run_trial(trial: dict[str, Any]) -> dict[str, float]:
    """Train on the digits for as many epochs as the trial has shares; return loss and accuracy on held-out images."""
    torch.set_num_threads(1)
    setting = Setting(shape_of(trial["model"]), TRAINING, trial["seed"], trial["zero"], trial["shares"])
    course = Course(setting, load_dataset("digits", None, 0))
    while not course.ended:
        course.run_epoch()
    return evaluate(course.gang.model, course.data)


@torch.no_grad()
def evaluate(model: VisionTransformer, data: Dataset) -> dict[str, float]:
    """Return loss and accuracy on the held-out images."""
    model.eval()
    logits = torch.cat([model(images) for images in torch.split(data.test_images, EVALUATED)])
    model.train()
    loss = float(F.cross_entropy(logits, data.test_labels))
    accuracy = float((logits.argmax(1) == data.test_labels).float().mean())
    return {"loss": loss, "accuracy": accuracy}
