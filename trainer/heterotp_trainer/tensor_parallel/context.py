"""What every tensor-parallel layer needs: its groups, its rank, its device, its clock and the unit plan."""

import gc
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import torch
import torch.distributed as dist
from torch import nn

from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import Clock
from heterotp_trainer.devices.whereabouts import Whereabouts
from heterotp_trainer.errors import InputError
from heterotp_trainer.plans.unit_plan import Family, UnitPlan
from heterotp_trainer.tensor_parallel.backward_order import BackwardLinks

UNITS: dict[Family, str] = {"heads": "heads", "ffn": "hidden units", "vocab": "vocabulary rows"}


@dataclass
class TPContext:
    """One rank's view of its tensor-parallel group; `group` is None for a single rank.

    unit_plan: which rank owns which units now. speeds: relative speed of each rank, for the first shares; empty: equal
    ones. control_group: gloo, for tensors in the host's memory and for objects; None: the default group.
    timeout_seconds: of a collective.
    """

    group: dist.ProcessGroup | None
    rank: int
    ranks: int
    device: Device
    clock: Clock
    unit_plan: UnitPlan
    dtype: torch.dtype = torch.float32
    speeds: tuple[float, ...] = ()
    control_group: dist.ProcessGroup | None = None
    where: Whereabouts = field(default_factory=Whereabouts)
    timeout_seconds: float = 300.0
    links: BackwardLinks = field(default_factory=BackwardLinks)
    _layers: WeakValueDictionary[str, nn.Module] = field(default_factory=WeakValueDictionary)
    _first: dict[Family, str] = field(default_factory=dict)  # the layer that decided the number of units

    def close(self) -> None:
        """Give up the groups; no layer can sum over them any more."""
        self.group = self.control_group = None

    def regroup(
        self,
        group: dist.ProcessGroup,
        control_group: dist.ProcessGroup,
        rank: int,
        unit_plan: UnitPlan,
        speeds: tuple[float, ...],
    ) -> None:
        """Continue as `rank` of other groups; unit_plan: whose units this rank's tensors hold."""
        self.group = group if unit_plan.ranks > 1 else None
        self.control_group, self.rank, self.ranks = control_group, rank, unit_plan.ranks
        self.unit_plan, self.speeds = unit_plan, speeds
        self.links.clear()

    @property
    def slowness(self) -> tuple[float, ...]:
        """1 / relative speed of each rank; empty: equal speeds."""
        return tuple(1 / speed for speed in self.speeds)

    def declare(self, name: str, layer: nn.Module, family: Family, units: int) -> None:
        """Enter a layer of `units` units; the first layer of a family decides which rank owns which of its units.

        Raises InputError for a name that another layer has, and for another number of units than the first layer's.
        """
        refuse_unfit(self, name, family, units)
        self._layers[name] = layer
        if not self.unit_plan.total(family):
            self._first[family] = name
            self.unit_plan = self.unit_plan.with_first_shares(family, units, self.speeds)

    def owned(self, family: Family) -> tuple[int, ...]:
        """Return the global ids of this rank's units."""
        return self.unit_plan.owned(family, self.rank)


def refuse_unfit(tp: TPContext, name: str, family: Family, units: int) -> None:
    """Raise InputError where `TPContext.declare` would, and enter nothing."""
    if name in tp._layers:
        gc.collect()  # a model that was given up may be alive in a cycle
    if name in tp._layers:
        raise InputError(
            f"layer '{name}': another layer has this name, and weights are drawn from names: both would be equal"
        )
    planned = tp.unit_plan.total(family)
    if planned not in (0, units):
        first = f"layer '{tp._first[family]}'" if family in tp._first else "the unit plan"
        what = f"{units} {UNITS[family]}, but {first} has {planned}"
        raise InputError(f"layer '{name}': {what}: all layers of one kind have the same number of units")


def refuse_other_contexts(model: nn.Module, tp: TPContext) -> None:
    """Raise InputError naming a layer that was made with another context, which balancing and plans would not reach."""
    for name, module in model.named_modules():
        other = getattr(module, "tp", None)
        if isinstance(other, TPContext) and other is not tp:
            raise InputError(
                f"session.watch: layer '{name}' was made with another TPContext than session.shard() returned: "
                "make all layers of the model with that one"
            )
