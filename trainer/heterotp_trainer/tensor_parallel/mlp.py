"""The feed-forward network cut by hidden units: fc2(gelu(fc1 x)) is a sum over them."""

import torch.nn.functional as F
from torch import Tensor, nn

from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.linear import ColumnParallelLinear, RowParallelLinear
from heterotp_trainer.tensor_parallel.unit_spec import ffn


class ParallelMLP(nn.Module):
    """[B, T, D] -> [B, T, D]; a unit is one hidden unit: fc1 row, its bias, fc2 column."""

    def __init__(self, tp: TPContext, hidden_size: int, ffn_units: int, *, name: str, seed: int) -> None:
        super().__init__()
        parts = ffn(ffn_units)
        self.fc1 = ColumnParallelLinear(tp, parts["fc1"], hidden_size, name=f"{name}.fc1", seed=seed)
        self.fc2 = RowParallelLinear(tp, parts["fc2"], hidden_size, name=f"{name}.fc2", seed=seed)

    def forward(self, x: Tensor) -> Tensor:
        """Return fc2(gelu(fc1 x))."""
        out: Tensor = self.fc2(F.gelu(self.fc1(x)))
        return out
