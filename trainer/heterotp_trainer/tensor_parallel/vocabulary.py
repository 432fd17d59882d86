"""Embedding and logits cut by vocabulary rows. Shapes: V rows in all, V_i of rank i, D model width.

|                   | rank i holds             | forward                            | dX             | dW_i            |
|-------------------|--------------------------|------------------------------------|----------------|-----------------|
| ParallelEmbedding | ids [...], W_i [V_i, D]  | Y [..., D] = sum_i W_i[id] (own)   | -              | sum dY by row   |
| ParallelLogits    | X [..., D], W_i [V_i, D] | Y_i [..., V_i] = X W_i^T           | sum_i dY_i W_i | dY_i^T X        |

Both may hold one parameter (tied weights): it moves once, and its gradient is the sum of both.
"""

from typing import Any

import torch
from torch import Tensor, nn

from heterotp_trainer.devices.phase_clock import VOCABULARY, phase
from heterotp_trainer.devices.stage_times import EMBEDDING, OTHER
from heterotp_trainer.errors import InputError
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.tensor_parallel.collectives import summed
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.cross_entropy import looked_up, vocabulary_places
from heterotp_trainer.tensor_parallel.linear import ColumnParallelLinear
from heterotp_trainer.tensor_parallel.regions import leave_unit
from heterotp_trainer.tensor_parallel.sharded_logits import ShardedLogits
from heterotp_trainer.tensor_parallel.unit_spec import ShardSpec, sharded_parameter, vocabulary


class _Lookup(torch.autograd.Function):
    """Y = sum_i W_i[id] over the group; backward needs no sum, since every rank holds dY."""

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, ids: Tensor, places: Tensor, padding: int | None, tp: TPContext, name: str
    ) -> Tensor:
        tp.clock.stage = EMBEDDING
        with phase(tp.clock, VOCABULARY):
            own = looked_up(places, ids)
            held = own >= 0
            out = weight.new_zeros(*ids.shape, weight.shape[1])
            if len(weight):
                out[held] = weight[own[held]]
        ctx.save_for_backward(own, held if padding is None else held & (ids != padding))
        ctx.shape, ctx.tp = weight.shape, tp
        return summed(out, tp, name, OTHER)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        own, held = ctx.saved_tensors
        ctx.tp.clock.stage = EMBEDDING
        with phase(ctx.tp.clock, VOCABULARY):
            dw = grad.new_zeros(ctx.shape)
            if len(dw):
                dw.index_add_(0, own[held], grad[held])
        return dw, None, None, None, None, None


def refuse_options(name: str, module: nn.Embedding) -> None:
    """Raise InputError for options of an embedding that need whole rows on one rank."""
    for option in ("max_norm", "scale_grad_by_freq", "sparse"):
        if getattr(module, option):
            raise InputError(f"layer '{name}': {option}={getattr(module, option)}: a sharded embedding has none")


class ParallelEmbedding(nn.Embedding):
    """An embedding of which each rank holds some rows: ids [...] -> [..., D], the same on every rank.

    Make it from a whole one with `adopt`, which keeps what the embedding's own class does around the lookup.
    """

    tp: TPContext
    spec: ShardSpec
    name: str
    _places: tuple[UnitPlan, Tensor] | None

    @classmethod
    def adopt(cls, module: nn.Embedding, tp: TPContext, *, name: str) -> "ParallelEmbedding":
        """Turn a whole embedding into this rank's part of it, without values yet (meta device), and return it.

        The object stays the same and its class becomes a subclass of its own class and of this one. Raises InputError
        for options that need whole rows on one rank.
        """
        refuse_options(name, module)
        tp.declare(name, module, "vocab", module.num_embeddings)
        own = type(module)  # a subclass calls the lookup by super().forward, which is then ours
        module.__class__ = cls if own is nn.Embedding else type(f"Parallel{own.__name__}", (own, cls), {})
        assert isinstance(module, ParallelEmbedding)
        module.tp, module.spec, module.name = tp, vocabulary(module.num_embeddings), name
        shape, owned = (module.num_embeddings, module.embedding_dim), tp.owned("vocab")
        module.weight = sharded_parameter(f"{name}.weight", shape, module.spec, owned, 0.0, None)
        module.weight.makes_no_product = True  # type: ignore[attr-defined]
        module._places = None
        return module

    def forward(self, ids: Tensor) -> Tensor:
        """Return the embeddings of the ids; raises IndexError where torch's embedding does (a GPU asserts)."""
        found = self._places
        if found is None or found[0] is not self.tp.unit_plan or found[1].device != ids.device:
            places = vocabulary_places(self.tp, self.num_embeddings, ids.device)
            found = self._places = self.tp.unit_plan, places
        out: Tensor = _Lookup.apply(self.weight, ids, found[1], self.padding_idx, self.tp, self.name)
        return out


class ParallelLogits(ColumnParallelLinear):
    """The linear of the logits, cut by vocabulary rows: [..., D] -> logits [..., V], of which a rank holds [..., V_i].

    See sharded_logits.py for what can be done with them.
    """

    def __init__(
        self, tp: TPContext, rows: int, in_features: int, *, name: str, seed: int | None, bias: bool = True
    ) -> None:
        super().__init__(tp, vocabulary(rows), in_features, name=name, seed=seed, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        out = leave_unit(super().forward(x), self.tp.clock, self.spec.family)
        return out if self.tp.ranks == 1 else ShardedLogits(out, self.tp, self.spec.total_units)

    def _keep(self, link: Tensor) -> None:
        """Keep no link: the logits' shard takes part in the loss on every rank, also where it is empty."""
