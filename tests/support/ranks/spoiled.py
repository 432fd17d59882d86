"""The built-in trainer, whose parameters are not finite from an iteration on: `spoiled.py ITERATION`."""

import sys

from heterotp import run_rank
from heterotp_trainer.training.builtin import main
from heterotp_trainer.training.loop import TrainingLoop

SPOILED_AT = int(sys.argv[1])


def step(self, images, labels, iteration, _step=TrainingLoop._step):
    loss = _step(self, images, labels, iteration)
    if iteration + 1 == SPOILED_AT:
        for parameter in self.task.model.parameters():
            parameter.data.mul_(float("nan"))
    return loss


TrainingLoop._step = step
run_rank(main)
