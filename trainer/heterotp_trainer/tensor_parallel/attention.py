"""Attention cut by whole heads: the output projection is a sum over heads."""

import torch.nn.functional as F
from torch import Tensor, nn

from heterotp_trainer.errors import InputError
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.linear import ColumnParallelLinear, RowParallelLinear
from heterotp_trainer.tensor_parallel.unit_spec import heads


class ParallelAttention(nn.Module):
    """[B, T, D] -> [B, T, D]; a unit is one head: its Q, K and V rows and its columns of the projection.

    Without a mask. Raises InputError where the width is no multiple of the number of heads.
    """

    def __init__(self, tp: TPContext, hidden_size: int, count: int, *, name: str, seed: int) -> None:
        super().__init__()
        if hidden_size % count:
            raise InputError(f"layer '{name}': {count} heads do not divide the width {hidden_size}")
        self.head_size = hidden_size // count
        parts = heads(count, self.head_size)
        self.qkv = ColumnParallelLinear(tp, parts["qkv"], hidden_size, name=f"{name}.qkv", seed=seed)
        self.proj = RowParallelLinear(tp, parts["proj"], hidden_size, name=f"{name}.proj", seed=seed)

    def forward(self, x: Tensor) -> Tensor:
        """Return proj(softmax(Q K^T / sqrt(H)) V), heads side by side."""
        qkv = self.qkv(x)
        out: Tensor = self.proj(self._mix(qkv.view(*x.shape[:2], -1, 3, self.head_size) if qkv.shape[-1] else qkv))
        return out

    def _mix(self, qkv: Tensor) -> Tensor:
        """Return the heads' outputs: [B, T, n, 3, H] -> [B, T, n H]; with no heads [B, T, 0] as it is."""
        if qkv.shape[2] == 0:
            return qkv
        query, key, value = (t.transpose(1, 2) for t in qkv.unbind(3))
        mixed = F.scaled_dot_product_attention(query, key, value)
        return mixed.transpose(1, 2).flatten(2)
