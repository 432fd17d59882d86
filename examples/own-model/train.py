"""A small GPT on unequal ranks: plain.py beside it, converted. `heterotp run examples/own-model/job.yaml` runs it.

Shapes: B batch, T tokens, D width, N windows. Lines that differ from plain.py end in a number, under which
docs/convert-your-model.md explains them.
"""

from itertools import islice  # (1)
from pydoc_data.topics import topics

import torch
import torch.nn.functional as F
from heterotp import Session, parallelize, run_rank  # (1)
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

LAYERS, WIDTH, HEADS, UNITS = 2, 64, 4, 256
SIZE = WIDTH // HEADS
CHARACTERS, CONTEXT = 128, 32
BATCH, PER_EPOCH, EPOCHS, RATE, CLIP, SEED = 16, 40, 3, 1e-2, 1.0, 0


# -- data --------------------------------------------------------------------------------------------------------------


def load() -> tuple[TensorDataset, TensorDataset]:
    """Return training and test data: windows of characters, and for each character the next one, [N, T] each."""
    text = "".join(topics[name] for name in sorted(topics))
    tokens = torch.tensor([min(ord(character), CHARACTERS - 1) for character in text])
    windows = tokens.unfold(0, CONTEXT + 1, CONTEXT)
    data = TensorDataset(windows[:, :-1].contiguous(), windows[:, 1:].contiguous())
    count = BATCH * PER_EPOCH
    return TensorDataset(*data[:count]), TensorDataset(*data[count : count + 200])


# -- attention ---------------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    """[B, T, D] -> [B, T, D]; a token sees itself and those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (self.split(part(x)) for part in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True) if query.shape[1] else query  # (2)
        return self.proj(mixed.transpose(1, 2).flatten(2))

    def split(self, x: Tensor) -> Tensor:
        """Heads apart: [B, T, heads x SIZE] -> [B, heads, T, SIZE]."""
        return x.unflatten(-1, (-1, SIZE)).transpose(1, 2)  # (3)


# -- feed-forward network ----------------------------------------------------------------------------------------------


class MLP(nn.Module):
    """[B, T, D] -> [B, T, D]."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(WIDTH, UNITS)
        self.fc2 = nn.Linear(UNITS, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


# -- model -------------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """[B, T, D] -> [B, T, D]."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.mlp = MLP()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Characters [B, T] -> logits of the next ones, [B, T, CHARACTERS]."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CHARACTERS)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.characters(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


# -- evaluation --------------------------------------------------------------------------------------------------------


def loss_of(logits: Tensor, answers: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), answers.flatten())


@torch.no_grad()
def evaluate(session: Session, model: GPT, test: TensorDataset) -> tuple[float, float]:  # (4)
    """Return loss and accuracy."""
    model.eval()
    tokens, answers = session.batch(*test.tensors)  # (4)
    logits = model(tokens)
    model.train()
    return float(loss_of(logits, answers)), float((logits.argmax(-1) == answers).float().mean())


# -- training ----------------------------------------------------------------------------------------------------------

PLAN = {f"blocks.*.attention.{name}": "heads.column" for name in ("query", "key", "value")}  # (5)
PLAN |= {"blocks.*.attention.proj": "heads.row"}  # (5)
PLAN |= {"blocks.*.mlp.fc1": "ffn.column", "blocks.*.mlp.fc2": "ffn.row"}  # (5)


def main(session: Session) -> None:  # (6)
    torch.manual_seed(SEED)
    train, test = load()
    model = parallelize(GPT(), session, PLAN, heads=HEADS, head_dim=SIZE)  # (5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=EPOCHS * PER_EPOCH)
    loader = DataLoader(train, BATCH, shuffle=True)
    session.watch(model, optimizer, iterations=EPOCHS * PER_EPOCH)  # (7)
    session.keep("schedule", schedule)  # (8)
    session.keep("data", loader)  # (8)
    iteration = session.restore()  # (9)
    for epoch in range(iteration // PER_EPOCH, EPOCHS):  # (9)
        for batch in islice(loader, PER_EPOCH - iteration % PER_EPOCH):  # (9)
            tokens, answers = session.batch(*batch)  # (4)
            optimizer.zero_grad()
            loss = loss_of(model(tokens), answers)
            loss.backward()
            session.step(CLIP, loss=loss)  # (10)
            schedule.step()
            iteration += 1  # (11)
            directive = session.boundary(iteration, loss=loss, samples=len(tokens), epoch=epoch)  # (11)
            if directive.stop:  # (12)
                return session.finish(state="stopped")  # (12)
        loss, accuracy = evaluate(session, model, test)  # (4)
        session.evaluated(loss, accuracy, epoch=epoch + 1)  # (13)
    session.finish()  # (14)


if __name__ == "__main__":
    run_rank(main)  # (6)
