"""Cross-entropy from logits cut by vocabulary rows: three sums over the group, never the whole logits.

Shapes: M rows (tokens), V vocabulary, V_i columns of rank i's units, which may be none. s: label smoothing.

|          | rank i holds            | over the group                               | result                        |
|----------|-------------------------|----------------------------------------------|-------------------------------|
| forward  | X_i [M, V_i], targets y | m = max X; z = sum exp(X - m); t = X[y]      | log z + m - (1-s) t - s mean X |
| backward | exp(X_i - m), z         | nothing                                      | dX_i = exp(X_i - m) / z - q_i |

q_i: the smoothed target distribution, 1 - s at y plus s / V everywhere. Computed in fp32, or in float64 where the
logits are. Same results as torch.nn.functional.cross_entropy with class indices.
"""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from heterotp_trainer.devices.phase_clock import VOCABULARY, phase
from heterotp_trainer.errors import InputError
from heterotp_trainer.tensor_parallel.collectives import greatest, start_sum
from heterotp_trainer.tensor_parallel.context import TPContext

Reduction = Literal["mean", "sum", "none"]
NAME = "the cross-entropy"


def vocabulary_places(tp: TPContext, rows: int, device: torch.device) -> Tensor:
    """Return the place of each vocabulary row among this rank's rows, -1 for those of other ranks: [V] int64."""
    places = torch.full((rows,), -1, dtype=torch.int64, device=device)
    first = 0
    for start, stop in tp.unit_plan.ranges("vocab", tp.rank):
        places[start:stop] = torch.arange(first, first + stop - start, device=device)
        first += stop - start
    return places


def looked_up(places: Tensor, ids: Tensor) -> Tensor:
    """Return the place of each id, refusing what torch's embedding refuses: negative and too large ids, uint8.

    By that very function, since indexing would count negative ids from the end and take uint8 for a mask; on a GPU it
    checks on the device, so that the host does not wait.
    """
    return F.embedding(ids, places[:, None]).squeeze(-1)


class _TokenLosses(torch.autograd.Function):
    """The loss of each row [M], from this rank's columns of the logits [M, V_i]; rows with `keep` False have loss 0."""

    @staticmethod
    def forward(
        ctx: Any, shard: Tensor, targets: Tensor, keep: Tensor, smoothing: float, rows: int, tp: TPContext
    ) -> Tensor:
        with phase(tp.clock, VOCABULARY):
            x = shard.to(torch.float64 if shard.dtype == torch.float64 else torch.float32)
            places = looked_up(vocabulary_places(tp, rows, x.device), targets)
            own = (places >= 0) & keep
            top = x.amax(1) if x.shape[1] else x.new_full((len(x),), -torch.inf)
            top = greatest(top, tp, NAME)
            target = torch.zeros_like(top)
            if x.shape[1]:
                picked = x.gather(1, places.clamp(min=0)[:, None])[:, 0]
                target = torch.where(own, picked, target)
            parts = [target, x.sum(1)] if smoothing else [target]
            x = (x - top[:, None]).exp_()
            target, total, *whole = start_sum(torch.stack([parts[0], x.sum(1), *parts[1:]]), tp, NAME)()
            losses = total.log() + top - (1 - smoothing) * target
            if smoothing:
                losses = losses - smoothing * whole[0] / rows
            x.div_(total[:, None])
        ctx.save_for_backward(x, places, own, keep)
        ctx.smoothing, ctx.rows, ctx.tp, ctx.dtype = smoothing, rows, tp, shard.dtype
        return torch.where(keep, losses, losses.new_zeros(()))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, places, own, keep = ctx.saved_tensors
        with phase(ctx.tp.clock, VOCABULARY):
            dx = x - ctx.smoothing / ctx.rows
            if x.shape[1]:
                at_target = own.to(dx.dtype) * -(1 - ctx.smoothing)
                dx.scatter_add_(1, places.clamp(min=0)[:, None], at_target[:, None])
            dx.mul_(torch.where(keep, grad, grad.new_zeros(()))[:, None])
        return dx.to(ctx.dtype), None, None, None, None, None


def sharded_cross_entropy(
    shard: Tensor,
    targets: Tensor,
    tp: TPContext,
    rows: int,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the cross-entropy of logits of which this rank holds its vocabulary rows (all ranks).

    shard: [..., V_i]. targets: class indices [...], the same on all ranks. rows: V. The result is the same on every
    rank. Raises InputError for a target outside of the vocabulary.
    """
    flat, wanted = shard.flatten(0, -2) if shard.dim() > 1 else shard[None], targets.reshape(-1)
    keep = wanted != ignore_index
    chosen = torch.where(keep, wanted, 0).long()  # uint8, too, which torch's loss accepts
    if chosen.device.type == "cpu" and len(chosen) and not 0 <= int(chosen.min()) <= int(chosen.max()) < rows:
        wrong = chosen[(chosen < 0) | (chosen >= rows)][0]
        raise InputError(f"cross_entropy: target {int(wrong)} is outside of the vocabulary of {rows} rows")
    losses: Tensor = _TokenLosses.apply(flat, chosen, keep, label_smoothing, rows, tp)
    if reduction == "none":
        return losses.view(targets.shape)
    return losses.sum() / keep.sum() if reduction == "mean" else losses.sum()
