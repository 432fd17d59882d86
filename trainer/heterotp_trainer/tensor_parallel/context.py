"""What every tensor-parallel layer is told: its group, its place, its device, its clock and the plan."""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import Clock
from heterotp_trainer.plans.unit_plan import Family, UnitPlan


@dataclass
class TPContext:
    """One rank's view of its tensor-parallel group; `group` is None for a single rank.

    plan: who owns which units now. slowness: of each rank, relative, as the first plan was made for; empty: all alike.
    """

    group: dist.ProcessGroup | None
    rank: int
    ranks: int
    device: Device
    clock: Clock
    plan: UnitPlan
    dtype: torch.dtype = torch.float32
    slowness: tuple[float, ...] = ()

    def owned(self, family: Family) -> tuple[int, ...]:
        """Return the global ids of this rank's units."""
        return self.plan.owned(family, self.rank)
