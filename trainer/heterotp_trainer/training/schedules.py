"""Learning-rate schedules."""

import math

import torch
from heterotp_api.training import Training


def learning_rate(training: Training, iteration: int, total: int) -> float:
    """Return the learning rate of an iteration (from 0): linear warm-up, then constant or half a cosine down to 0."""
    warmup = training.warmup_iterations
    if iteration < warmup:
        return training.learning_rate * (iteration + 1) / warmup
    if training.schedule == "constant":
        return training.learning_rate
    progress = (iteration - warmup) / max(1, total - warmup)
    return training.learning_rate * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the rate of all groups."""
    for group in optimizer.param_groups:
        group["lr"] = rate
