"""Attention cut by whole heads: the output projection is a sum over heads."""

import torch.nn.functional as F
from torch import Tensor, nn

from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.linear import ColumnParallelLinear, RowParallelLinear
from heterotp_trainer.tensor_parallel.regions import enter_unit, leave_unit


class ParallelAttention(nn.Module):
    """[B, T, D] -> [B, T, D]; a unit is one head: its Q, K and V rows and its columns of the projection."""

    def __init__(self, tp: TPContext, hidden_size: int, heads: int, *, name: str, seed: int) -> None:
        super().__init__()
        self.tp = tp
        self.head_size = hidden_size // heads
        width = 3 * self.head_size
        self.qkv = ColumnParallelLinear(tp, "heads", hidden_size, heads, width, name=f"{name}.qkv", seed=seed)
        self.proj = RowParallelLinear(tp, "heads", hidden_size, heads, self.head_size, name=f"{name}.proj", seed=seed)

    def forward(self, x: Tensor) -> Tensor:
        """Return proj(softmax(Q K^T / sqrt(H)) V), heads side by side."""
        qkv = enter_unit(self.qkv(x), self.tp.clock)
        qkv = qkv + self.qkv.bias.to(qkv.dtype)
        mixed = self._mix(qkv.view(*x.shape[:2], -1, 3, self.head_size) if qkv.shape[-1] else qkv)
        out: Tensor = self.proj(leave_unit(mixed, self.tp.clock))
        return out

    def _mix(self, qkv: Tensor) -> Tensor:
        """Return the heads' outputs: [B, T, n, 3, H] -> [B, T, n H]; with no heads [B, T, 0] as it is."""
        if qkv.shape[2] == 0:
            return qkv
        query, key, value = (t.transpose(1, 2) for t in qkv.unbind(3))
        mixed = F.scaled_dot_product_attention(query, key, value)
        return mixed.transpose(1, 2).flatten(2)
