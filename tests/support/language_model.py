"""A small language model whose vocabulary is cut by rows, in plain terms: for tests of all that moves and reduces it.

Shapes: B batch, T tokens, D width, V rows of the vocabulary, V_i rows of rank i.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from heterotp_trainer.tensor_parallel.attention import ParallelAttention
from heterotp_trainer.tensor_parallel.collectives import start_sum
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.linear import ColumnParallelLinear
from heterotp_trainer.tensor_parallel.mlp import ParallelMLP
from heterotp_trainer.tensor_parallel.regions import leave_unit
from heterotp_trainer.tensor_parallel.unit_spec import sharded_parameter, vocabulary
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

WIDTH, HEADS, UNITS, ROWS, TOKENS, BATCH = 24, 6, 48, 61, 8, 4
SEED = 3


def places(tp: TPContext) -> Tensor:
    """Return the place of each row of the vocabulary in this rank's shard, V_i where another rank owns it: [V]."""
    owned = torch.tensor(tp.owned("vocab"), dtype=torch.long)
    found = torch.full((ROWS,), len(owned))
    found[owned] = torch.arange(len(owned))
    return found


class _Summed(torch.autograd.Function):
    """The sum over the group; every rank holds the same gradient of it."""

    @staticmethod
    def forward(ctx, x, tp):
        return start_sum(x.clone(), tp, "embed")()

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class _CrossEntropy(torch.autograd.Function):
    """Mean cross-entropy of logits [M, V_i] that lie on all ranks, without ever holding them whole."""

    @staticmethod
    def forward(ctx, logits, targets, tp, *links):
        own = places(tp)[targets]
        mine = own < logits.shape[1]
        highest = logits.new_full((len(logits), 1), -torch.inf)
        most = torch.cat([logits, highest], 1).max(1, keepdim=True).values
        if tp.group is not None:
            dist.all_reduce(most, op=dist.ReduceOp.MAX, group=tp.group)
        shifted = torch.cat([logits - most, torch.zeros_like(highest)], 1)  # the last column: rows of other ranks
        parts = torch.stack([shifted[:, :-1].exp().sum(1), shifted.gather(1, own[:, None])[:, 0] * mine])
        whole, target = start_sum(parts, tp, "cross-entropy")()
        ctx.save_for_backward(shifted[:, :-1].exp() / whole[:, None], own, mine)
        ctx.links = len(links)
        return (whole.log() - target).mean()

    @staticmethod
    def backward(ctx, grad):
        share, own, mine = ctx.saved_tensors
        one = F.one_hot(own.clamp(max=max(0, share.shape[1] - 1)), max(1, share.shape[1]))[:, : share.shape[1]]
        return (share - one * mine[:, None]) * grad / len(share), None, None, *(None,) * ctx.links


class Embedding(nn.Module):
    """[B, T] -> [B, T, D]: its own rows, the sum over the ranks."""

    def __init__(self, tp: TPContext, weight: nn.Parameter | None) -> None:
        super().__init__()
        self.tp = tp
        drawn = sharded_parameter("embed", (ROWS, WIDTH), vocabulary(ROWS), tp.owned("vocab"), 0.5, SEED)
        drawn.makes_no_product = True
        self.weight = drawn if weight is None else weight

    def forward(self, tokens: Tensor) -> Tensor:
        other = self.weight.new_zeros(1, WIDTH)
        return _Summed.apply(torch.cat([self.weight, other])[places(self.tp)[tokens]].to(self.tp.dtype), self.tp)


class LanguageModel(nn.Module):
    """Tokens [B, T] and the next ones [B, T] -> their mean cross-entropy."""

    def __init__(self, tp: TPContext, *, tied: bool = False, recompute: bool = False) -> None:
        super().__init__()
        self.tp, self.recompute = tp, recompute
        head = ColumnParallelLinear(tp, vocabulary(ROWS), WIDTH, name="lm_head", seed=SEED, bias=False)
        self.embed = Embedding(tp, head.weight if tied else None)
        self.attention = ParallelAttention(tp, WIDTH, HEADS, name="attention", seed=SEED)
        self.mlp, self.lm_head = ParallelMLP(tp, WIDTH, UNITS, name="mlp", seed=SEED), head
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.embed(tokens)
        x = checkpoint(self._block, x, use_reentrant=False) if self.recompute else self._block(x)
        logits = leave_unit(self.lm_head(self.norms[2](x)), self.tp.clock, "vocab")
        loss: Tensor = _CrossEntropy.apply(logits.flatten(0, 1), targets.flatten(), self.tp, *self.tp.links.take())
        return loss

    def _block(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class Plain(nn.Module):
    """The same on one rank by torch's own embedding and cross-entropy; weights: whole ones, by name."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        model = self.model
        x = model._block(F.embedding(tokens, model.embed.weight))
        return F.cross_entropy(F.linear(model.norms[2](x), model.lm_head.weight).flatten(0, 1), targets.flatten())


def tokens_of(iteration: int) -> tuple[Tensor, Tensor]:
    """Return the tokens of an iteration, and the next ones: [B, T] each."""
    drawn = torch.randint(ROWS, (BATCH, TOKENS + 1), generator=torch.Generator().manual_seed(iteration))
    drawn[:, ::2] //= 5  # some rows are frequent, so that there is something to learn
    return drawn[:, :-1], drawn[:, 1:]
