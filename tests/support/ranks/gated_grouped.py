"""A model with grouped-query attention and a gated FFN, whose layers draw their own weights, and its loop.

The rows of each 8x8 digit are eight tokens. Its attention leaves the empty outputs of key and value out of the graph.
"""

import torch
import torch.nn.functional as F
from heterotp import ColumnParallelLinear, RowParallelLinear, Session, TPContext, gated_ffn, grouped_heads, run_rank
from heterotp_trainer.data import batches, load_dataset
from torch import Tensor, nn

WIDTH, UNITS, GROUPS, QUERIES, SIZE = 48, 192, 6, 2, 8  # 12 query heads share 6 key/value heads of 8
BATCH, ITERATIONS, SEED = 64, 100, 0


class GatedFFN(nn.Module):
    """down(silu(gate x) * up x): [B, T, D] -> [B, T, D]."""

    def __init__(self, tp: TPContext) -> None:
        super().__init__()
        parts = gated_ffn(UNITS)
        self.gate = ColumnParallelLinear(tp, parts["gate"], WIDTH, name="gate", seed=SEED, bias=False)
        self.up = ColumnParallelLinear(tp, parts["up"], WIDTH, name="up", seed=SEED, bias=False)
        self.down = RowParallelLinear(tp, parts["down"], WIDTH, name="down", seed=SEED, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class GroupedAttention(nn.Module):
    """Grouped-query attention: [B, T, D] -> [B, T, D]."""

    def __init__(self, tp: TPContext) -> None:
        super().__init__()
        parts = grouped_heads(GROUPS, QUERIES, SIZE)
        self.query = ColumnParallelLinear(tp, parts["query"], WIDTH, name="query", seed=SEED)
        self.key = ColumnParallelLinear(tp, parts["key"], WIDTH, name="key", seed=SEED)
        self.value = ColumnParallelLinear(tp, parts["value"], WIDTH, name="value", seed=SEED)
        self.proj = RowParallelLinear(tp, parts["proj"], WIDTH, name="proj", seed=SEED)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (part(x).unflatten(-1, (-1, SIZE)).transpose(1, 2) for part in self.parts)
        key, value = (part.repeat_interleave(QUERIES, dim=1) for part in (key, value))
        # a rank that owns no groups has nothing to mix
        mixed = F.scaled_dot_product_attention(query, key, value) if query.shape[1] else query
        return self.proj(mixed.transpose(1, 2).flatten(2))

    @property
    def parts(self) -> tuple[nn.Module, nn.Module, nn.Module]:
        return self.query, self.key, self.value


class Classifier(nn.Module):
    """[B, 1, 8, 8] -> logits [B, 10]."""

    def __init__(self, tp: TPContext) -> None:
        super().__init__()
        torch.manual_seed(SEED)
        self.embed, self.position = nn.Linear(8, WIDTH), nn.Parameter(0.02 * torch.randn(8, WIDTH))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))
        self.attention, self.ffn, self.head = GroupedAttention(tp), GatedFFN(tp), nn.Linear(WIDTH, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.embed(images.squeeze(1)) + self.position
        x = x + self.attention(self.norms[0](x))
        x = x + self.ffn(self.norms[1](x))
        return self.head(self.norms[2](x).mean(1))


def main(session: Session) -> None:
    tp = session.shard()
    data = load_dataset("digits")
    model = Classifier(tp)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    session.watch(model, optimizer, iterations=ITERATIONS)
    iteration = session.restore()
    per_epoch = len(data.train_labels) // BATCH
    while iteration < ITERATIONS:
        epoch, start = divmod(iteration, per_epoch)
        for images, labels in batches(data, BATCH, SEED, epoch, start):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            session.step()
            iteration += 1
            directive = session.boundary(iteration, loss=loss, samples=BATCH, epoch=epoch)
            if directive.stop:
                return session.finish(state="stopped")
            if iteration == ITERATIONS:
                break
    model.eval()
    with torch.no_grad():
        logits = model(data.test_images)
    loss, right = F.cross_entropy(logits, data.test_labels), (logits.argmax(1) == data.test_labels).float().mean()
    session.evaluated(float(loss), float(right), epoch=iteration // per_epoch)
    session.finish()


if __name__ == "__main__":
    run_rank(main)
