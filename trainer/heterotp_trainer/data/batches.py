"""Batches in an order that depends only on seed and epoch, so that every rank reads the same ones."""

import hashlib
from collections.abc import Iterator

import torch

from heterotp_trainer.data.dataset import Dataset
from heterotp_trainer.errors import InputError


def batches(
    dataset: Dataset, batch_size: int, seed: int, epoch: int, start: int = 0
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield (images [B, C, S, S], labels [B]) of shuffled training batches, from batch `start` on.

    An incomplete last batch is left out. Raises InputError when the data set is smaller than one batch.
    """
    for index in range(start, batches_per_epoch(dataset, batch_size)):
        if index == start:
            order = order_of(len(dataset.train_labels), seed, epoch)
        chosen = order[index * batch_size : (index + 1) * batch_size]
        yield dataset.train_images[chosen], dataset.train_labels[chosen]


def batches_per_epoch(dataset: Dataset, batch_size: int) -> int:
    """Return the number of whole batches in an epoch; raise InputError where there is none."""
    count = len(dataset.train_labels) // batch_size
    if count == 0:
        available = len(dataset.train_labels)
        raise InputError(f"spec.training.batchSize: {batch_size}: {dataset.name} has only {available} training images")
    return count


def order_of(count: int, seed: int, epoch: int) -> torch.Tensor:
    """Return the order of `count` samples in an epoch, the same on every rank: [count]."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(_mix(seed, epoch)))


def _mix(seed: int, epoch: int) -> int:
    digest = hashlib.sha256(f"{seed}/{epoch}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % 2**63
