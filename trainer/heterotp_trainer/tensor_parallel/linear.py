"""Linear layers cut by units. Shapes: M rows (batch x tokens), D model width, R rows of this rank's units.

ColumnParallelLinear   Y_i [M, R_i] = X [M, D] W_i^T, W_i [R_i, D]: every rank holds X, and its own columns of Y
RowParallelLinear      Y [M, D] = sum_i X_i [M, R_i] W_i^T, W_i [D, R_i]: every rank holds its columns of X, and Y
Backward: dX = dY W, dW = dY^T X.
"""

import time
from typing import Any

import torch
from torch import Tensor, nn

from heterotp_trainer.clock import phase
from heterotp_trainer.tensor_parallel.collectives import start_sum
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.regions import enter_unit, leave_unit
from heterotp_trainer.tensor_parallel.unit_spec import ShardSpec, draw, sharded_parameter

INIT_STD = 0.02


def _product(a: Tensor, b: Tensor, tp: TPContext) -> Tensor:
    """Return a @ b, settled by the device: [m, k] x [k, n] is 2 m k n operations."""
    started = time.perf_counter()
    out = a @ b
    tp.device.settle_gemm(2 * a.shape[0] * a.shape[1] * b.shape[1], started)
    return out


def _forward(x: Tensor, weight: Tensor, tp: TPContext) -> Tensor:
    """Return X W^T in the context's precision: [..., K] -> [..., N]."""
    with phase(tp.clock, "matmul"):
        out = _product(_rows(x), weight.to(tp.dtype).t(), tp)
    return out.view(*x.shape[:-1], weight.shape[0])


def _input_gradient(grad: Tensor, weight: Tensor, tp: TPContext) -> Tensor:
    """Return dX = dY W."""
    with phase(tp.clock, "matmul"):
        out = _product(_rows(grad), weight.to(tp.dtype), tp)
    return out.view(*grad.shape[:-1], weight.shape[1])


def _weight_gradient(grad: Tensor, x: Tensor, weight: Tensor, tp: TPContext) -> Tensor:
    """Return dW = dY^T X in the weight's own precision."""
    with phase(tp.clock, "matmul"):
        return _product(_rows(grad).t(), _rows(x), tp).to(weight.dtype)


def _rows(x: Tensor) -> Tensor:
    return x.flatten(0, -2)  # reshape(-1, 0) is ambiguous on a rank without units


class _ColumnLinear(torch.autograd.Function):
    """Y_i = X W_i^T; backward sums dX over the group (Megatron's f), under way while dW is computed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, tp: TPContext) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.tp = tp
        return _forward(x, weight, tp)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors  # may recompute the block: before a phase begins
        finish = start_sum(_input_gradient(grad, weight, ctx.tp), ctx.tp)
        dw = _weight_gradient(grad, x, weight, ctx.tp)
        return finish(), dw, None


class _RowLinear(torch.autograd.Function):
    """Y = sum_i X_i W_i^T + b over the group (Megatron's g); backward needs no sum: every rank holds dY."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, tp: TPContext) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.tp, ctx.bias_dtype = tp, None if bias is None else bias.dtype
        out = start_sum(_forward(x, weight, tp), tp)()
        return out if bias is None else out.add_(bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        dx, dw = _input_gradient(grad, weight, ctx.tp), _weight_gradient(grad, x, weight, ctx.tp)
        db = None if ctx.bias_dtype is None else _rows(grad).sum(0, dtype=ctx.bias_dtype)
        return dx, dw, db, None


class ColumnParallelLinear(nn.Module):
    """Output columns cut by units. What follows, up to the row linear, is work that moves with the units."""

    def __init__(
        self, tp: TPContext, spec: ShardSpec, in_features: int, *, name: str, seed: int, bias: bool = True
    ) -> None:
        super().__init__()
        self.tp = tp
        owned = tp.owned(spec.family)
        self.weight = sharded_parameter(f"{name}.weight", (spec.rows_in_all, in_features), spec, owned, INIT_STD, seed)
        self.bias = sharded_parameter(f"{name}.bias", (spec.rows_in_all,), spec, owned, 0.0, seed) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Return X W_i^T + b_i, the columns of this rank's units: [..., D] -> [..., R_i]."""
        out = enter_unit(_ColumnLinear.apply(x, self.weight, self.tp), self.tp.clock)
        return out if self.bias is None else out + self.bias.to(out.dtype)


class RowParallelLinear(nn.Module):
    """Input columns cut by units: partial sums are all-reduced, the replicated bias comes after."""

    def __init__(
        self, tp: TPContext, spec: ShardSpec, out_features: int, *, name: str, seed: int, bias: bool = True
    ) -> None:
        super().__init__()
        self.tp = tp
        shape = (out_features, spec.rows_in_all)
        self.weight = sharded_parameter(f"{name}.weight", shape, spec, tp.owned(spec.family), INIT_STD, seed)
        self.bias = nn.Parameter(draw(f"{name}.bias", (out_features,), 0.0, seed)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Return sum_i X_i W_i^T + b, the same on every rank: [..., R_i] -> [..., D]."""
        out: Tensor = _RowLinear.apply(leave_unit(x, self.tp.clock), self.weight, self.bias, self.tp)
        return out
