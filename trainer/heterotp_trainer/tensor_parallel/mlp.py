"""The feed-forward network cut by hidden units: fc2(gelu(fc1 x)) is a sum over them."""

import torch.nn.functional as F
from torch import Tensor, nn

from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.linear import ColumnParallelLinear, RowParallelLinear
from heterotp_trainer.tensor_parallel.regions import enter_unit, leave_unit


class ParallelMLP(nn.Module):
    """[B, T, D] -> [B, T, D]; a unit is one hidden unit: fc1 row, its bias, fc2 column."""

    def __init__(self, tp: TPContext, hidden_size: int, ffn_units: int, *, name: str, seed: int) -> None:
        super().__init__()
        self.tp = tp
        self.fc1 = ColumnParallelLinear(tp, "ffn", hidden_size, ffn_units, 1, name=f"{name}.fc1", seed=seed)
        self.fc2 = RowParallelLinear(tp, "ffn", hidden_size, ffn_units, 1, name=f"{name}.fc2", seed=seed)

    def forward(self, x: Tensor) -> Tensor:
        """Return fc2(gelu(fc1 x))."""
        hidden = enter_unit(self.fc1(x), self.tp.clock)
        hidden = F.gelu(hidden + self.fc1.bias.to(hidden.dtype))
        out: Tensor = self.fc2(leave_unit(hidden, self.tp.clock))
        return out
