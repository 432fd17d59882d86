"""A decoder in plain torch, as people write it, with the mistakes that a plan for it can meet."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HEADS, GROUPS, SIZE, UNITS, ROWS = 4, 2, 8, 24, 40
WIDTH = HEADS * SIZE
PLAN = {
    **{f"layers.*.attn.{part}": "heads.column" for part in ("wq", "wk", "wv")},
    "layers.*.attn.wo": "heads.row",
    "layers.*.attn.scale": "replicated.partial",
    "layers.*.up": "ffn.column",
    "layers.*.down": "ffn.row",
    "embed": "vocab.embedding",
    "head": "vocab.logits",
}
SIZES = {"heads": HEADS, "kv_heads": GROUPS, "head_dim": SIZE}


class Attention(nn.Module):
    """[B, T, D] -> [B, T, D]."""

    def __init__(self, mistake: str) -> None:
        super().__init__()
        self.mistake = mistake
        self.wq, self.wo = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wk, self.wv = nn.Linear(WIDTH, GROUPS * SIZE), nn.Linear(WIDTH, GROUPS * SIZE)
        self.scale = nn.RMSNorm(SIZE)

    def forward(self, x: Tensor) -> Tensor:
        heads = HEADS if self.mistake == "a number of heads" else -1
        query = self.scale(self.wq(x).view(*x.shape[:2], heads, SIZE)).transpose(1, 2)
        key, value = (part(x).view(*x.shape[:2], -1, SIZE).transpose(1, 2) for part in (self.wk, self.wv))
        key, value = (each.repeat_interleave(HEADS // GROUPS, 1) for each in (key, value))
        dropped = 0.1 if self.mistake == "dropout" else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, dropout_p=dropped)
        return self.wo(mixed.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """[B, T, D] -> [B, T, D]."""

    def __init__(self, mistake: str) -> None:
        super().__init__()
        self.mistake, self.attn = mistake, Attention(mistake)
        self.up, self.down = nn.Linear(WIDTH, UNITS), nn.Linear(UNITS, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(x)
        weight = self.norm.weight
        if self.mistake == "a gradient that shards leave out" and len(self.up.weight) < UNITS:
            weight = weight.detach()
        hidden = F.gelu(self.up(F.layer_norm(x, (WIDTH,), weight, self.norm.bias)))
        if self.mistake == "a mean over hidden units":
            hidden = hidden - hidden.mean(-1, keepdim=True)
        return x + self.down(hidden)


class Decoder(nn.Module):
    """Ids [B, T] -> logits [B, T, ROWS]."""

    def __init__(self, mistake: str = "") -> None:
        super().__init__()
        self.mistake = mistake
        self.embed, self.head = nn.Embedding(ROWS, WIDTH), nn.Linear(WIDTH, ROWS, bias=False)
        self.layers = nn.ModuleList(Layer(mistake) for _ in range(2))
        self.dropout = nn.Dropout(0.1)  # of whole activations

    def forward(self, ids: Tensor) -> Tensor:
        x = self.dropout(self.embed(ids))
        for layer in self.layers:
            x = layer(x)
        if self.mistake == "hidden units in the output":
            return torch.cat([self.head(x), self.layers[0].up(x)], -1)
        return self.head(x)
