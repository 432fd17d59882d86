"""A training loop for pods: each batch is read from a disk. Environment: CPU: the one to run on; FILE: what is read.

It runs until it is stopped.
"""

import os

import torch
from heterotp import Session, parallelize, run_rank
from torch import nn

LAYERS, WIDTH, UNITS, BATCH = 4, 256, 1024, 64
PLAN = {"*.fc1": "ffn.column", "*.fc2": "ffn.row"}
FILE_BYTES, READ_BYTES = 4 << 20, 1 << 20
FOREVER = 1_000_000


class Layer(nn.Module):
    """[B, WIDTH] -> [B, WIDTH]."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(WIDTH, UNITS), nn.Linear(UNITS, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.fc2(torch.relu(self.fc1(x)))


class File:
    """Bytes on a disk, which are read from there each time."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.pwrite(self._file, bytes(FILE_BYTES), 0)
        os.fsync(self._file)  # what is not yet on the disk stays in the cache

    def batch(self, iteration: int) -> torch.Tensor:
        """Return [B, WIDTH]."""
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)
        read = os.pread(self._file, READ_BYTES, iteration * READ_BYTES % FILE_BYTES)
        return torch.frombuffer(bytearray(read), dtype=torch.uint8)[: BATCH * WIDTH].view(BATCH, WIDTH) / 255


def main(session: Session) -> None:
    os.sched_setaffinity(0, {int(os.environ["CPU"])})
    torch.manual_seed(0)
    file = File(os.environ["FILE"])
    model = parallelize(nn.Sequential(*(Layer() for _ in range(LAYERS))), session, PLAN)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    session.watch(model, optimizer, iterations=FOREVER)
    for iteration in range(1, FOREVER):
        (batch,) = session.batch(file.batch(iteration))
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        session.step(1.0, loss=loss)
        if session.boundary(iteration, loss=loss, samples=BATCH).stop:
            return session.finish(state="stopped")
    session.finish()


if __name__ == "__main__":
    run_rank(main)
