"""The built-in trainer, whose parameters are not finite from an iteration on: `spoiled.py ITERATION`."""

import sys

from heterotp import run_rank
from heterotp_trainer.training import vision

SPOILED_AT = int(sys.argv[1])


def step(self, images, labels, iteration, _step=vision.Trainer._step):
    loss = _step(self, images, labels, iteration)
    if iteration + 1 == SPOILED_AT:
        for parameter in self.model.parameters():
            parameter.data.mul_(float("nan"))
    return loss


vision.Trainer._step = step
run_rank(vision.main)
