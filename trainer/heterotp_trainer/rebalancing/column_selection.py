"""Which columns a straggler leaves out: at random, or those whose weights moved least (algorithms, section 2)."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from heterotp_api.policy import Zero
from torch import Tensor

from heterotp_trainer.balancing.strategies.zero import by_layer
from heterotp_trainer.resharding.sharded_state import ShardedState
from heterotp_trainer.tensor_parallel.linear import ParallelLinear
from heterotp_trainer.tensor_parallel.unit_spec import ShardSpec


class Importance:
    """How much the columns of one linear moved between two refreshes; every rank keeps it, not only a straggler.

    delta_i = mean over rows of |w_t - w_(t-1)|, [L]. A column pruned in most steps since the last refresh keeps
    its old delta, at first the mean of the others: without gradients it stood still, and would look unimportant for
    ever.
    """

    def __init__(self, linear: ParallelLinear) -> None:
        self._weight = linear.weight
        self._before = linear.weight.detach().clone()
        self._pruned_steps = torch.zeros(linear.weight.shape[1], device=linear.weight.device)
        self._steps = 0
        self.delta: Tensor | None = None
        self.iterations = 0  # that delta was measured over

    def sharded_states(self, spec: ShardSpec) -> list[ShardedState]:
        """Return what is kept of the linear's units. Of a column-parallel linear, delta is over the rows that a rank
        owns: each rank's own estimate, which stays.
        """
        kept = [ShardedState(self._before, spec, partial(setattr, self, "_before"))]
        if spec.dim == 1:
            along = replace(spec, dim=0)
            kept.append(ShardedState(self._pruned_steps, along, partial(setattr, self, "_pruned_steps")))
            if self.delta is not None:
                kept.append(ShardedState(self.delta, along, partial(setattr, self, "delta")))
        return kept

    def step(self, pruned: Tensor | None) -> None:
        """Count one optimizer step, in which the columns `pruned` were left out."""
        self._steps += 1
        if pruned is not None:
            self._pruned_steps[pruned] += 1

    def refresh(self) -> None:
        """Measure delta anew and begin to count again."""
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


def block_order(delta: Tensor | None, columns: int, grain: int, seed: Sequence[object]) -> Tensor:
    """Return all whole blocks of columns, the first to be pruned first: by mean delta, else as drawn for the seed."""
    count = columns // grain
    if delta is None:
        return _drawn(count, seed)
    means = delta[: count * grain].reshape(count, grain).mean(1)
    return torch.argsort(means, stable=True)


def _drawn(count: int, seed: Sequence[object]) -> Tensor:
    digest = hashlib.blake2b("/".join(map(str, seed)).encode(), digest_size=8).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
    return torch.randperm(count, generator=generator)


def counts_by_layer(
    pruned: int,
    deltas: Sequence[Tensor | None],
    columns: int,
    room: int,
    grain: int,
    settings: Zero,
    iterations: int,
) -> list[int]:
    """Return the columns that each linear of a class prunes: the same for all, but with PriDiff by importance.

    room: of `columns`, those that no other rank computes.
    """
    known = [delta for delta in deltas if delta is not None]
    if not settings.selection.startswith("PriDiff") or len(known) < len(deltas) or pruned in (0, room):
        return [pruned] * len(deltas)
    merged = torch.stack(known)
    if settings.theta_mode == "absolute":
        theta = iterations * settings.theta_per_iteration
    else:
        theta = float(merged.flatten().quantile(settings.theta_quantile))
    return by_layer(pruned, (merged <= theta).float().mean(1).tolist(), settings, columns, room, grain)
