"""Which columns a rank prunes: random ones, or those whose weights changed least (docs/algorithms.md, ZERO)."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from heterotp_api.strategy_blocks import Zero
from torch import Tensor

from heterotp_trainer.checkpoint.stream import Slot
from heterotp_trainer.resharding.sharded_state import ShardedState
from heterotp_trainer.tensor_parallel.column_partition import ColumnPartition
from heterotp_trainer.tensor_parallel.columns import ColumnSet
from heterotp_trainer.tensor_parallel.linear import ParallelLinear
from heterotp_trainer.tensor_parallel.unit_spec import ShardSpec


class Importance:
    """The mean change of each column of one linear between two refreshes; kept on every rank.

    delta_i = mean over rows of |w_t - w_(t-1)|, [L]. A column pruned in most steps since the last refresh keeps its
    delta, at first the mean of the others: without gradients its weights do not change, so that it would be selected
    again and again.
    """

    def __init__(self, linear: ParallelLinear) -> None:
        self._weight = linear.weight
        self._before = linear.weight.detach().clone()
        self._pruned_steps = torch.zeros(linear.weight.shape[1], device=linear.weight.device)
        self._steps = 0
        self.delta: Tensor | None = None
        self.iterations = 0  # optimizer steps that delta was measured over

    def slots(self, name: str, spec: ShardSpec) -> list[Slot]:
        """Return the tensors that a checkpoint holds; name: of the linear.

        What a rank counts of the columns of a column-parallel linear is its own; on other shares each rank begins with
        the mean over the ranks.
        """
        along = replace(spec, dim=0) if spec.dim == 1 else None
        own = along is None
        kept = {
            "before": (self._before, spec),
            "pruned_steps": (self._pruned_steps, along),
            "delta": (self.delta, along),
        }
        fields = {"before": "_before", "pruned_steps": "_pruned_steps", "delta": "delta"}
        return [
            Slot(f"columns/{name}/{key}", tensor, cut, partial(setattr, self, fields[key]), averaged=own)
            for key, (tensor, cut) in kept.items()
        ]

    @property
    def counts(self) -> list[int]:
        """Steps that delta was measured over, and steps since; the same for all linears and on all ranks."""
        return [self.iterations, self._steps]

    def resume(self, counts: Sequence[int]) -> None:
        """Continue from `counts`."""
        self.iterations, self._steps = counts

    def sharded_states(self, spec: ShardSpec) -> list[ShardedState]:
        """Return the state that moves with the linear's units.

        The delta of a column-parallel linear is the rank's own estimate over its rows, and does not move.
        """
        kept = [ShardedState(self._before, spec, partial(setattr, self, "_before"))]
        if spec.dim == 1:
            along = replace(spec, dim=0)
            kept.append(ShardedState(self._pruned_steps, along, partial(setattr, self, "_pruned_steps")))
            if self.delta is not None:
                kept.append(ShardedState(self.delta, along, partial(setattr, self, "delta")))
        return kept

    def step(self, pruned: Tensor | None) -> None:
        """Count one optimizer step, during which the columns `pruned` were pruned."""
        self._steps += 1
        if pruned is not None:
            self._pruned_steps[pruned] += 1

    def refresh(self) -> None:
        """Measure delta and restart the count of steps; nothing changes without a step since the last refresh."""
        if not self._steps:
            return
        moved = (self._weight.detach() - self._before).abs().float().sum(0) / max(1, len(self._weight))
        still = self._pruned_steps > self._steps / 2
        before = self.delta
        if before is None:
            before = moved.masked_fill(still, 0.0).sum() / (~still).sum().clamp(min=1)
        self.delta = torch.where(still, before, moved)
        self._before.copy_(self._weight.detach())
        self._pruned_steps.zero_()
        self.iterations, self._steps = self._steps, 0


def draw_period(settings: Zero, iteration: int, epoch: int) -> int:
    """Return the number of the period in which columns that are pruned at random stay the same."""
    return iteration if settings.redraw == "iteration" else epoch


def block_order(delta: Tensor | None, columns: int, grain: int, seed: Sequence[object]) -> Tensor:
    """Return all whole blocks of columns in the order of pruning: by mean delta, else randomly from the seed."""
    count = columns // grain
    if delta is None:
        return torch.randperm(count, generator=_generator(seed))
    means = delta[: count * grain].reshape(count, grain).mean(1)
    return torch.argsort(means, stable=True)


def redrawn(partitions: Sequence[ColumnPartition], seed: Sequence[object]) -> list[ColumnPartition]:
    """Return the partitions of n linears of one size with other pruned columns, as many, drawn at random.

    Migrated columns stay as they are. All linears are drawn together on the host: a few operations, whatever n is.
    """
    pruned = [cut.pruned for cut in partitions if cut.pruned is not None]
    if not pruned or len(pruned[0]) % pruned[0].grain:  # all columns: there is no choice
        return list(partitions)
    first, grain = pruned[0], pruned[0].grain
    free = torch.stack([_free_blocks(cut.migrated, first) for cut in partitions])
    scores = torch.rand(free.shape, generator=_generator(seed)).masked_fill_(~free, 2.0)
    chosen = scores.argsort(1)[:, : len(first) // grain].sort(1).values
    gone = torch.stack([_in(cut.migrated, first.total) for cut in partitions])
    columns = (chosen[..., None] * grain + torch.arange(grain)).flatten(1)
    kept = (~gone.scatter(1, columns, True)).nonzero()[:, 1].view(len(partitions), -1)
    blocks = kept[:, ::grain] // grain if not first.total % grain and not gone.any() else None
    kept_sets = ColumnSet.of_rows(kept, first, blocks)
    pruned_sets = ColumnSet.of_rows(columns, first, None if first.total % grain else chosen)
    every = zip(partitions, kept_sets, pruned_sets, strict=True)
    return [replace(cut, kept=kept_set, pruned=pruned_set) for cut, kept_set, pruned_set in every]


def _free_blocks(migrated: ColumnSet | None, like: ColumnSet) -> Tensor:
    """Return on the host which whole blocks contain no migrated column: [blocks]."""
    count = like.total // like.grain
    return ~_in(migrated, like.total)[: count * like.grain].view(count, like.grain).any(1)


def _in(columns: ColumnSet | None, total: int) -> Tensor:
    """Return on the host which of all columns are in a set: [L]."""
    return torch.zeros(total, dtype=torch.bool) if columns is None else columns.mask


def _generator(seed: Sequence[object]) -> torch.Generator:
    digest = hashlib.blake2b("/".join(map(str, seed)).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def unimportant_shares(deltas: Sequence[Tensor | None], settings: Zero, iterations: int) -> list[float | None]:
    """Return by layer the share, 0..1, of columns whose importance is at most theta; None while that is not measured.

    deltas: importance of the columns of each layer, [L] each. iterations: those that the importance was measured over.
    theta is a quantile of all deltas, or grows with the iterations (docs/algorithms.md). A selection that does not
    differ by layer measures nothing.
    """
    known = [delta for delta in deltas if delta is not None]
    if not settings.selection_traits.per_layer or len(known) < len(deltas):
        return [None] * len(deltas)
    merged = torch.stack(known)
    if settings.theta_mode == "absolute":
        theta = iterations * settings.theta_per_iteration
    else:
        theta = float(merged.flatten().quantile(settings.theta_quantile))
    return [float(share) for share in (merged <= theta).float().mean(1)]
