"""Learning-rate schedules."""

import math

import torch
from heterotp_api.training import Training

DECLINE = 0.1  # of all iterations: the end of warmup-stable-decay, where decayIterations is absent


def learning_rate(training: Training, iteration: int, total: int) -> float:
    """Return the learning rate of an iteration (from 0): a linear warm-up, then the schedule.

    constant keeps the rate. The others end at the floor: linear in a line, cosine as half a cosine, warmup-stable-decay
    in a line over its last iterations.
    """
    warmup, rate = training.warmup_iterations, training.learning_rate
    if iteration < warmup:
        return rate * (iteration + 1) / warmup
    floor = training.learning_rate_floor or 0.0
    return floor + (rate - floor) * _height(training, iteration, total)


def _height(training: Training, iteration: int, total: int) -> float:
    """Return where between the floor (0) and the full rate (1) the schedule is."""
    begin = training.warmup_iterations
    if training.schedule == "constant":
        return 1.0
    if training.schedule == "warmup-stable-decay":
        begin = max(begin, total - (training.decay_iterations or max(1, round(DECLINE * total))))
    progress = min(1.0, max(0.0, (iteration - begin) / max(1, total - begin)))
    return 0.5 * (1 + math.cos(math.pi * progress)) if training.schedule == "cosine" else 1 - progress


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the rate of all groups, times the factor that a group may have."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("factor", 1.0)
