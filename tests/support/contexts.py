"""Contexts of ranks without a group: what a rank owns and computes by itself, in one process."""

import torch
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import NullClock
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.tensor_parallel.context import TPContext


def contexts(speeds=(1.0, 1.0, 0.1)):
    """Return a context per rank, without a group: a row linear then returns its rank's own part of the sum."""
    device, ranks = Device(torch.device("cpu"), "cpu"), len(speeds)
    return [
        TPContext(None, rank, ranks, device, NullClock(), UnitPlan.empty(ranks), speeds=speeds) for rank in range(ranks)
    ]


class Alone:
    """A session of one rank, or one that only seems to have more."""

    def __init__(self, ranks=1):
        self.ranks = ranks

    def shard(self):
        device = Device(torch.device("cpu"), "cpu")
        return TPContext(None, 0, self.ranks, device, NullClock(), UnitPlan.empty(self.ranks))
