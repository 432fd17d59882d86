"""What every tensor-parallel layer needs: its groups, its rank, its device, its clock and the unit plan."""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import Clock
from heterotp_trainer.plans.unit_plan import Family, UnitPlan


@dataclass
class TPContext:
    """One rank's view of its tensor-parallel group; `group` is None for a single rank.

    unit_plan: which rank owns which units now. slowness: 1 / relative speed of each rank, for which the first plan was
    made; empty: equal speeds. control_group: gloo, for the host's tensors and for objects; None: the default group.
    """

    group: dist.ProcessGroup | None
    rank: int
    ranks: int
    device: Device
    clock: Clock
    unit_plan: UnitPlan
    dtype: torch.dtype = torch.float32
    slowness: tuple[float, ...] = ()
    control_group: dist.ProcessGroup | None = None

    def owned(self, family: Family) -> tuple[int, ...]:
        """Return the global ids of this rank's units."""
        return self.unit_plan.owned(family, self.rank)
