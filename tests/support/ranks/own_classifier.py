"""A plain model in the loop of its user: `own_classifier.py ITERATIONS`.

It has dropout of whole activations and a BatchNorm, and a shuffled DataLoader: all three draw from, or depend on what
is drawn from, torch's own generator, which the library must leave alone.
"""

import os
import sys
from pathlib import Path

import heterotp
import torch
import torch.nn.functional as F
from heterotp_api.names import Env
from plain_decoder import PLAN, ROWS, SIZES, WIDTH, Decoder
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

ITERATIONS, CLASSES, SAMPLES, BATCH, TOKENS = int(sys.argv[1]), 5, 48, 12, 6


class Classifier(nn.Module):
    """Ids [B, T] -> logits of classes [B, CLASSES]."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = Decoder()
        self.norm, self.classes = nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.decoder.dropout(self.decoder.embed(ids))
        for layer in self.decoder.layers:
            x = F.dropout(layer(x), 0.1, self.training)
        return self.classes(self.norm(x.mean(1)))


def main(session):
    torch.manual_seed(0)
    model = Classifier()
    heterotp.parallelize(model, session, plan={f"decoder.{name}": role for name, role in PLAN.items()}, **SIZES)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    session.watch(model, optimizer, iterations=ITERATIONS)
    draw = torch.Generator().manual_seed(3)
    ids, answers = (
        torch.randint(ROWS, (SAMPLES, TOKENS), generator=draw),
        torch.randint(CLASSES, (SAMPLES,), generator=draw),
    )
    loader = DataLoader(TensorDataset(ids, answers), BATCH, shuffle=True)
    iteration = session.restore()
    while iteration < ITERATIONS:
        for images, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            session.step(1.0, loss=loss)
            iteration += 1
            if session.boundary(iteration, loss=loss, samples=BATCH).stop:
                return session.finish(state="stopped")
    heterotp.save_pretrained(model, Path(os.environ[Env.WORKDIR]) / "exported")
    session.finish()


heterotp.run_rank(main)
