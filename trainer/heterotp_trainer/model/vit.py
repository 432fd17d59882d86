"""The vision transformer. Shapes: B batch, C channels, S image side, T tokens, D model width."""

from functools import partial

import torch
import torch.nn.functional as F
from heterotp_api.training import ModelShape
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from heterotp_trainer.errors import InputError
from heterotp_trainer.tensor_parallel.attention import ParallelAttention
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.linear import INIT_STD
from heterotp_trainer.tensor_parallel.mlp import ParallelMLP
from heterotp_trainer.tensor_parallel.unit_spec import draw


class LayerNorm(nn.Module):
    """Layer normalisation in fp32, whatever the precision of the activations."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return x normalised over its last dimension."""
        return F.layer_norm(x.float(), self.weight.shape, self.weight, self.bias).to(x.dtype)


class Block(nn.Module):
    """x + attention(norm x), then x + mlp(norm x)."""

    def __init__(self, tp: TPContext, shape: ModelShape, *, name: str, seed: int) -> None:
        super().__init__()
        self.tp = tp
        width = shape.hidden_size
        self.norm1, self.norm2 = LayerNorm(width), LayerNorm(width)
        self.attention = ParallelAttention(tp, width, shape.heads, name=f"{name}.attention", seed=seed)
        self.mlp = ParallelMLP(tp, width, shape.ffn_units, name=f"{name}.mlp", seed=seed)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output, [B, T, D] -> [B, T, D]; the clock returns to the phase before.

        Recomputation runs inside another phase.
        """
        before = self.tp.clock.switch("fixed")
        try:
            x = x + self.attention(self.norm1(x))
            x = x + self.mlp(self.norm2(x))
            return x
        finally:
            self.tp.clock.switch(before)


class VisionTransformer(nn.Module):
    """Patches, a class token, positions, blocks, and a linear head on the class token."""

    def __init__(
        self,
        tp: TPContext,
        shape: ModelShape,
        *,
        image_size: int,
        channels: int,
        classes: int,
        seed: int,
        recompute: bool = False,
    ) -> None:
        super().__init__()
        if image_size % shape.patch_size:
            raise InputError(
                f"spec.training.model.patchSize {shape.patch_size} does not divide the images' side {image_size}"
            )
        self.tp, self.patch_size, self.recompute = tp, shape.patch_size, recompute
        width, patches = shape.hidden_size, (image_size // shape.patch_size) ** 2
        fresh = partial(_replicated, seed=seed)
        self.patch_weight = fresh("patch.weight", (width, channels * shape.patch_size**2))
        self.patch_bias = fresh("patch.bias", (width,), std=0.0)
        self.class_token = fresh("class_token", (1, 1, width))
        self.positions = fresh("positions", (1, patches + 1, width))
        self.blocks = nn.ModuleList(Block(tp, shape, name=f"blocks.{i}", seed=seed) for i in range(shape.depth))
        self.norm = LayerNorm(width)
        self.head_weight = fresh("head.weight", (classes, width))
        self.head_bias = fresh("head.bias", (classes,), std=0.0)

    @property
    def embeddings(self) -> tuple[nn.Parameter, ...]:
        """The class token and the positions."""
        return self.class_token, self.positions

    def forward(self, images: Tensor) -> Tensor:
        """Return logits in fp32: [B, C, S, S] -> [B, classes]."""
        x = self._embed(images).to(self.tp.dtype)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute and self.training else block(x)
        return F.linear(self.norm(x[:, 0].float()), self.head_weight, self.head_bias)

    def _embed(self, images: Tensor) -> Tensor:
        """Return tokens with the class token first: [B, C, S, S] -> [B, T, D]."""
        patches = F.unfold(images, self.patch_size, stride=self.patch_size).transpose(1, 2)
        tokens = F.linear(patches, self.patch_weight, self.patch_bias)
        return torch.cat([self.class_token.expand(len(images), -1, -1), tokens], dim=1) + self.positions


def _replicated(name: str, shape: tuple[int, ...], *, seed: int, std: float = INIT_STD) -> nn.Parameter:
    """Return a parameter that every rank holds whole."""
    return nn.Parameter(draw(name, shape, std, seed))
