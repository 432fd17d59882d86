"""Linear layers cut by units. Shapes: M rows (batch x tokens), D model width, R_i rows of the units of rank i.

|                      | rank i holds               | forward                        | dX             | dW_i     |
|----------------------|----------------------------|--------------------------------|----------------|----------|
| ColumnParallelLinear | X [M, D], W_i [R_i, D]     | Y_i [M, R_i] = X W_i^T         | sum_i dY_i W_i | dY_i^T X |
| RowParallelLinear    | X_i [M, R_i], W_i [D, R_i] | Y [M, D] = sum_i X_i W_i^T + b | dX_i = dY W_i  | dY^T X_i |

The sums are all-reduces over the group: Megatron's f (backward of the column linear) and g (forward of the row linear).
Links: see backward_order.py.
"""

from typing import Any, Self

import torch
from torch import Tensor, nn

from heterotp_trainer.devices.stage_times import BACKWARD, FORWARD, OTHER
from heterotp_trainer.errors import InputError
from heterotp_trainer.plans.linears import Parallel
from heterotp_trainer.tensor_parallel.backward_order import link_of, no_gradient
from heterotp_trainer.tensor_parallel.collectives import start_sum, summed
from heterotp_trainer.tensor_parallel.column_partition import ColumnPartition
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.product import multiply, rows_of
from heterotp_trainer.tensor_parallel.regions import enter_unit, leave_unit
from heterotp_trainer.tensor_parallel.resized import ResizedColumn, ResizedRow
from heterotp_trainer.tensor_parallel.unit_spec import ShardSpec, sharded_parameter

INIT_STD = 0.02


def _forward(x: Tensor, weight: Tensor, tp: TPContext) -> Tensor:
    """Return X W^T in the precision of the context: [..., K] -> [..., N]."""
    out = multiply(rows_of(x), weight.to(tp.dtype).t(), tp)
    return out.view(*x.shape[:-1], weight.shape[0])


def _input_gradient(grad: Tensor, weight: Tensor, tp: TPContext) -> Tensor:
    """Return dX = dY W: [..., N] -> [..., K]."""
    out = multiply(rows_of(grad), weight.to(tp.dtype), tp)
    return out.view(*grad.shape[:-1], weight.shape[1])


def _weight_gradient(grad: Tensor, x: Tensor, weight: Tensor, tp: TPContext) -> Tensor:
    """Return dW = dY^T X [N, K] in the weight's own precision."""
    return multiply(rows_of(grad).t(), rows_of(x), tp).to(weight.dtype)


class _ColumnLinear(torch.autograd.Function):
    """Y_i = X W_i^T and a link; backward sums dX over the group (Megatron's f) while dW is computed.

    bias: added to Y_i by the caller; here it only gets its gradient of 0 where Y_i is in no graph on this rank.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, linear: "ParallelLinear"
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, weight)
        ctx.tp, ctx.bias, ctx.name, ctx.stage = linear.tp, bias, linear.name, BACKWARD[linear.spec.family]
        out = _forward(x, weight, linear.tp)
        return out, link_of(out)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, link: Tensor | None) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors  # may recompute the block: before a phase begins
        ctx.tp.clock.stage, db = ctx.stage, None
        if grad is None:
            grad, db = x.new_zeros(*x.shape[:-1], len(weight), dtype=ctx.tp.dtype), no_gradient(ctx.bias)
        finish = start_sum(_input_gradient(grad, weight, ctx.tp), ctx.tp, f"{ctx.name}, backward")
        dw = _weight_gradient(grad, x, weight, ctx.tp)
        ctx.tp.clock.stage = OTHER
        return finish(), dw, db, None


class _RowLinear(torch.autograd.Function):
    """Y = sum_i X_i W_i^T + b over the group (Megatron's g); backward needs no sum, since every rank holds dY."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, linear: "ParallelLinear", *links: Tensor
    ) -> Tensor:
        tp = linear.tp
        ctx.save_for_backward(x, weight)
        ctx.links = len(links)
        ctx.tp, ctx.bias_dtype, ctx.stage = tp, None if bias is None else bias.dtype, BACKWARD[linear.spec.family]
        out = summed(_forward(x, weight, tp), tp, linear.name, OTHER)
        return out if bias is None else out.add_(bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        ctx.tp.clock.stage = ctx.stage
        dx, dw = _input_gradient(grad, weight, ctx.tp), _weight_gradient(grad, x, weight, ctx.tp)
        db = None if ctx.bias_dtype is None else rows_of(grad).sum(0, dtype=ctx.bias_dtype)
        return dx, dw, db, None, *(None,) * ctx.links


class ParallelLinear(nn.Module):
    """What both kinds share: the shard, and the column partition of the step, by which plans reach the products.

    name: from it and `seed` the weights are drawn; without a seed they have no values yet (meta device). rows: M of
    the last call; calls: calls in training since they were last reset. Raises InputError for a name that another layer
    has, and where the number of units is not that of the family's first layer.
    """

    parallel: Parallel

    def __init__(
        self, tp: TPContext, spec: ShardSpec, full_shape: tuple[int, int], *, name: str, seed: int | None
    ) -> None:
        super().__init__()
        self.tp, self.spec, self.name = tp, spec, name
        self.out_features, self.in_features = full_shape  # of the whole layer, as user code reads them
        tp.declare(name, self, spec.family, spec.total_units)
        self.weight = sharded_parameter(f"{name}.weight", full_shape, spec, tp.owned(spec.family), INIT_STD, seed)
        self.partition: ColumnPartition | None = None
        self.rows = self.calls = 0

    @classmethod
    def of(cls, linear: nn.Linear, tp: TPContext, spec: ShardSpec, *, name: str) -> Self:
        """Return this rank's part of a whole linear, with its weights: fresh ones, or those of a trained model.

        The linear must be the same on all ranks. Its rows (of a column-parallel layer) or columns (row-parallel) are
        units in ascending order. Raises InputError where their number is not that of the units, and as the constructor.
        """
        column = cls.parallel == "column"
        cut, other = linear.weight.shape if column else linear.weight.shape[::-1]
        if cut != spec.rows_in_all:
            what = f"the linear has {cut} {'outputs' if column else 'inputs'}"
            units = f"{spec.total_units} units of {spec.rows_per_unit} make {spec.rows_in_all}"
            raise InputError(f"layer '{name}': {what}, but {units}: both must be equal")
        make: Any = cls  # the constructors of both kinds take the width that is not cut
        made: Self = make(tp, spec, other, name=name, seed=0, bias=linear.bias is not None)
        with torch.no_grad():
            made.weight.copy_(spec.cut(linear.weight, tp.owned(spec.family)))
            if isinstance(made.bias, Tensor):
                made.bias.copy_(spec.cut(linear.bias, tp.owned(spec.family)) if column else linear.bias)
        return made

    def _partition(self, x: Tensor) -> ColumnPartition | None:
        """Return the column partition of this step; None in an evaluation, which computes all columns."""
        if not self.training:
            return None
        self.rows = rows_of(x).shape[0]
        self.calls += 1
        return self.partition


class ColumnParallelLinear(ParallelLinear):
    """Output columns cut by units; the work from here to the row linear moves with the units."""

    parallel = "column"

    def __init__(
        self, tp: TPContext, spec: ShardSpec, in_features: int, *, name: str, seed: int | None, bias: bool = True
    ) -> None:
        super().__init__(tp, spec, (spec.rows_in_all, in_features), name=name, seed=seed)
        owned = tp.owned(spec.family)
        self.bias = sharded_parameter(f"{name}.bias", (spec.rows_in_all,), spec, owned, 0.0, seed) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Return X W_i^T + b_i, the columns of this rank's units, in the precision of tp: [..., D] -> [..., R_i]."""
        x = x.to(self.tp.dtype)
        self.tp.clock.stage = FORWARD[self.spec.family]
        partition, weight = self._partition(x), self.weight
        bias: Tensor | None = self.bias
        if partition is None:
            out, link = _ColumnLinear.apply(x, weight, bias, self)
        elif partition.units is not None:  # whole units are left out: rows of W, and the same columns of fc2
            bias = None if bias is None else bias[partition.units.ids]
            out, link = _ColumnLinear.apply(x, weight.index_select(0, partition.units.ids), bias, self)
        else:
            out, link = ResizedColumn.apply(x, weight, bias, self)
        self._keep(link)
        out = enter_unit(out, self.tp.clock, self.spec.family)
        return out if bias is None else out + bias.to(out.dtype)

    def _keep(self, link: Tensor) -> None:
        """Keep the link for the next row linear."""
        self.tp.links.add(link)


class RowParallelLinear(ParallelLinear):
    """Input columns cut by units; partial sums are all-reduced, then the replicated bias is added."""

    parallel = "row"

    def __init__(
        self, tp: TPContext, spec: ShardSpec, out_features: int, *, name: str, seed: int | None, bias: bool = True
    ) -> None:
        super().__init__(tp, spec, (out_features, spec.rows_in_all), name=name, seed=seed)
        device = "meta" if seed is None else "cpu"
        self.bias = nn.Parameter(torch.zeros(out_features, device=device)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Return sum_i X_i W_i^T + b, the same on every rank, in the precision of tp: [..., R_i] -> [..., D]."""
        x = leave_unit(x, self.tp.clock, self.spec.family).to(self.tp.dtype)
        partition, links = self._partition(x), self.tp.links.take()
        if partition is None:
            out: Tensor = _RowLinear.apply(x, self.weight, self.bias, self, *links)
        elif partition.units is not None:
            out = _RowLinear.apply(x, self.weight.index_select(1, partition.units.ids), self.bias, self, *links)
        else:
            out = ResizedRow.apply(x, self.weight, self.bias, self, *links)
        return out
