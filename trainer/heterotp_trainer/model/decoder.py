"""Decoders of text in plain torch, made to be cut by `parallelize`: Llama's and GPT's blocks.

Shapes: B batch, T tokens, D model width, V vocabulary, H width of a head, n heads that a rank holds (any number, 0
too): no code here names the width of a part that is cut. References: Touvron et al. 2023 (arXiv:2302.13971), Radford et
al. 2019.
"""

import torch
import torch.nn.functional as F
from heterotp_api.models import DecoderShape
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

ROTARY_BASE = 10000.0
EPS = 1e-5
STD = 0.02  # of initial weights

# the role of each module; `*` is the number of a block
PLAN = {
    "embedding": "vocab.embedding",
    "blocks.*.attention.query": "heads.column",
    "blocks.*.attention.key": "heads.column",
    "blocks.*.attention.value": "heads.column",
    "blocks.*.attention.out": "heads.row",
    "blocks.*.ffn.up": "ffn.column",
    "blocks.*.ffn.down": "ffn.row",
    "head": "vocab.logits",
}
GATE = {"blocks.*.ffn.gate": "ffn.column"}


class Norm(nn.Module):
    """Layer normalisation, or RMSNorm (without a bias), in fp32 at least."""

    def __init__(self, width: int, *, rms: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = None if rms else nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return x normalised over its last dimension."""
        wide = x if x.dtype == torch.float64 else x.float()
        if self.bias is None:
            return F.rms_norm(wide, self.weight.shape, self.weight, EPS).to(x.dtype)
        return F.layer_norm(wide, self.weight.shape, self.weight, self.bias, EPS).to(x.dtype)


class Attention(nn.Module):
    """Causal attention by KV groups, with rotary positions for Llama: [B, T, D] -> [B, T, D]."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        width, size, biased = shape.hidden_size, shape.head_size, shape.kind == "gpt"
        self.size, self.rotary = size, shape.kind == "llama"
        self.query = nn.Linear(width, shape.heads * size, bias=biased)
        self.key = nn.Linear(width, shape.groups * size, bias=biased)
        self.value = nn.Linear(width, shape.groups * size, bias=biased)
        self.out = nn.Linear(shape.heads * size, width, bias=biased)

    def forward(self, x: Tensor) -> Tensor:
        """Return out(softmax(Q K^T / sqrt(H)) V); each KV head serves its group of query heads."""
        query, key, value = self.query(x), self.key(x), self.value(x)
        mixed = query if query.shape[-1] == 0 else self._mix(*(self._heads(each) for each in (query, key, value)))
        out: Tensor = self.out(mixed)
        return out

    def _heads(self, x: Tensor) -> Tensor:
        """Return [B, T, n H] as [B, n, T, H]."""
        return x.view(*x.shape[:2], x.shape[-1] // self.size, self.size).transpose(1, 2)

    def _mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return the heads' outputs side by side: [B, T, n H]."""
        if self.rotary:
            query, key = _rotated(query), _rotated(key)
        mixed = F.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=query.shape[1] != key.shape[1]
        )
        return mixed.transpose(1, 2).flatten(2)


def _rotated(x: Tensor) -> Tensor:
    """Return x [B, n, T, H] with each pair (i, i + H/2) turned by position / base^(2i/H)."""
    half = x.shape[-1] // 2
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    frequencies = ROTARY_BASE ** (-torch.arange(half, device=x.device, dtype=wide) / half)
    angles = torch.arange(x.shape[-2], device=x.device, dtype=wide)[:, None] * frequencies
    cosine, sine = angles.cos(), angles.sin()
    first, second = x[..., :half].to(wide), x[..., half:].to(wide)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1).to(x.dtype)


class FeedForward(nn.Module):
    """down(silu(gate x) * up x) for Llama, down(gelu(up x)) for GPT: [B, T, D] -> [B, T, D]."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        width, units, biased = shape.hidden_size, shape.ffn_units, shape.kind == "gpt"
        self.gate = nn.Linear(width, units, bias=False) if shape.kind == "llama" else None
        self.up = nn.Linear(width, units, bias=biased)
        self.down = nn.Linear(units, width, bias=biased)

    def forward(self, x: Tensor) -> Tensor:
        """Return the network's output."""
        hidden = self.up(x)
        hidden = F.gelu(hidden) if self.gate is None else F.silu(self.gate(x)) * hidden
        out: Tensor = self.down(hidden)
        return out


class Block(nn.Module):
    """x + attention(norm x), then x + ffn(norm x)."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        rms = shape.kind == "llama"
        self.norm1, self.attention = Norm(shape.hidden_size, rms=rms), Attention(shape)
        self.norm2, self.ffn = Norm(shape.hidden_size, rms=rms), FeedForward(shape)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output, [B, T, D] -> [B, T, D]."""
        x = x + self.attention(self.norm1(x))
        out: Tensor = x + self.ffn(self.norm2(x))
        return out


class Decoder(nn.Module):
    """Embedding, blocks, norm, logits; GPT adds learned positions and its logits' matrix is the embedding."""

    def __init__(self, shape: DecoderShape, vocabulary: int, longest: int, *, recompute: bool = False) -> None:
        """longest: tokens of the longest sequence, for learned positions."""
        super().__init__()
        self.shape, self.longest, self.recompute = shape, longest, recompute
        width, gpt = shape.hidden_size, shape.kind == "gpt"
        self.embedding = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.zeros(longest, width)) if gpt else None
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.depth))
        self.norm = Norm(width, rms=not gpt)
        self.head = nn.Linear(width, vocabulary, bias=False)
        if gpt:
            self.head.weight = self.embedding.weight

    @property
    def plan(self) -> dict[str, str]:
        """The role of each module that is cut, for `parallelize`."""
        return {**PLAN, **(GATE if self.shape.kind == "llama" else {})}

    def _init_weights(self, module: nn.Module) -> None:
        """Give one module its initial values; called for each, parts first, as in transformers.

        `initialize` repeats it with generators of its own: it is called on the meta device, where nothing is drawn.
        A deviation of 0.02, and of 0.02 / sqrt(2 depth) for what is added to the residual stream (Radford et al. 2019).
        """
        if isinstance(module, (nn.Linear, nn.Embedding)):
            module.weight.normal_(0.0, STD, generator=None)
        if isinstance(module, (nn.Linear, Norm)) and module.bias is not None:
            module.bias.zero_()
        if isinstance(module, Norm):
            module.weight.fill_(1.0)
        if isinstance(module, (Attention, FeedForward)):
            last = module.out if isinstance(module, Attention) else module.down
            last.weight.normal_(0.0, STD / (2 * self.shape.depth) ** 0.5, generator=None)
        if module is self and self.positions is not None:
            self.positions.normal_(0.0, STD, generator=None)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits: [B, T] -> [B, T, V]."""
        x: Tensor = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions[: tokens.shape[1]]
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute and self.training else block(x)
        out: Tensor = self.head(self.norm(x))
        return out
