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
from heterotp_trainer.tensor_parallel.collectives import copy_to_group, reduce_from_group
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.unit_spec import ShardSpec, draw, sharded_parameter
from heterotp_trainer.tensor_parallel.units import Family

INIT_STD = 0.02


def _product(a: Tensor, b: Tensor, tp: TPContext) -> Tensor:
    """Return a @ b, settled by the device: [m, k] x [k, n] is 2 m k n operations."""
    started = time.perf_counter()
    out = a @ b
    tp.device.settle_gemm(2 * a.shape[0] * a.shape[1] * b.shape[1], started)
    return out


class _Linear(torch.autograd.Function):
    """Y = X W^T in the context's precision; all three products are booked on "matmul"."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, tp: TPContext) -> Tensor:
        with phase(tp.clock, "matmul"):
            cast = weight.to(tp.dtype)
            rows = x.flatten(0, -2)  # reshape(-1, 0) is ambiguous on a rank without units
            out = _product(rows, cast.t(), tp)
        ctx.save_for_backward(x, weight)
        ctx.tp = tp
        return out.view(*x.shape[:-1], weight.shape[0])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors  # may recompute the block: before the phase begins
        tp = ctx.tp
        with phase(tp.clock, "matmul"):
            rows = x.flatten(0, -2)  # reshape(-1, 0) is ambiguous on a rank without units
            grads = grad.flatten(0, -2)
            dx = _product(grads, weight.to(tp.dtype), tp)
            dw = _product(grads.t(), rows, tp)
        return dx.view_as(x), dw.to(weight.dtype), None


def linear(x: Tensor, weight: Tensor, tp: TPContext) -> Tensor:
    """Return x [..., K] times weight [N, K] transposed: [..., N]."""
    out: Tensor = _Linear.apply(x, weight, tp)
    return out


class ColumnParallelLinear(nn.Module):
    """Output columns cut by units: a rank computes those of its own units, `rows_per_unit` each."""

    def __init__(
        self,
        tp: TPContext,
        family: Family,
        in_features: int,
        total_units: int,
        rows_per_unit: int,
        *,
        name: str,
        seed: int,
    ) -> None:
        super().__init__()
        self.tp = tp
        spec = ShardSpec(family, 0, rows_per_unit, total_units)
        units, rows = tp.owned(family), total_units * rows_per_unit
        self.weight = sharded_parameter(f"{name}.weight", (rows, in_features), spec, units, INIT_STD, seed)
        self.bias = sharded_parameter(f"{name}.bias", (rows,), spec, units, 0.0, seed)

    def forward(self, x: Tensor) -> Tensor:
        """Return X W_i^T without the bias, which the caller adds as unit work: [B, T, D] -> [B, T, R_i]."""
        return linear(copy_to_group(x, self.tp), self.weight, self.tp)


class RowParallelLinear(nn.Module):
    """Input columns cut by units: partial sums are all-reduced, the replicated bias comes after."""

    def __init__(
        self,
        tp: TPContext,
        family: Family,
        out_features: int,
        total_units: int,
        rows_per_unit: int,
        *,
        name: str,
        seed: int,
    ) -> None:
        super().__init__()
        self.tp = tp
        spec = ShardSpec(family, 1, rows_per_unit, total_units)
        shape = (out_features, total_units * rows_per_unit)
        self.weight = sharded_parameter(f"{name}.weight", shape, spec, tp.owned(family), INIT_STD, seed)
        self.bias = nn.Parameter(draw(f"{name}.bias", (out_features,), 0.0, seed))

    def forward(self, x: Tensor) -> Tensor:
        """Return sum_i X_i W_i^T + b: [B, T, R_i] -> [B, T, D], the same on every rank."""
        partial = linear(x, self.weight, self.tp)
        return reduce_from_group(partial, self.tp) + self.bias.to(partial.dtype)
