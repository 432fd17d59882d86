"""All measured costs of one job, by rank and class of linears."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from heterotp_trainer.plans.arrays import Array, added, total
from heterotp_trainer.plans.cost_tables import CostTables
from heterotp_trainer.plans.linears import Curve, Line, LinearClass, Link, UnitMoveCost
from heterotp_trainer.plans.unit_plan import FAMILIES, USUAL_WEIGHTS, Family, UnitPlan, Weights

IDLE_SHARE = 0.125  # of an even share of the work


@dataclass(frozen=True)
class Costs:
    """Measured costs that decisions use: curves[rank][class], grains (columns per block) by rank, transfers."""

    classes: tuple[LinearClass, ...]
    curves: tuple[tuple[Curve, ...], ...]
    grains: tuple[int, ...]
    link: Link = Link()
    item_bytes: int = 4
    allocation: float = 0.0  # Omega1, seconds an iteration
    extraction: Line = Line()  # Omega2, seconds an iteration over the share of columns pruned, 0..1
    unit_move: UnitMoveCost = UnitMoveCost()

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.curves)

    @cached_property
    def tables(self) -> CostTables:
        """Classes and curves as arrays over the ranks."""
        return CostTables.of(self.classes, self.curves)

    def owned_by(self, plan: UnitPlan) -> "Costs":
        """Return the costs under another unit plan; measured curves do not change."""
        other = replace(self, classes=tuple(each.owned_by(plan) for each in self.classes))
        other.__dict__["by_family"] = self.by_family  # independent of the unit plan
        return other

    @cached_property
    def idle(self) -> NDArray[np.bool_]:
        """Whether a rank owns too little work to measure its speed by: [e]."""
        work = added(self.tables.operations * self.tables.columns, self.ranks)
        few: NDArray[np.bool_] = work < IDLE_SHARE * total(work) / max(1, self.ranks)
        return few

    @cached_property
    def by_family(self) -> dict[Family, tuple[Array, Array]]:
        """Cache of units and seconds of each family's curves, filled by `reshard_problem.family_curve`: [e, P] each."""
        return {}

    @property
    def weights(self) -> Weights:
        """Each family's part of the operations of all ranks, 0..1."""
        work = [total(row) for row in self.tables.operations * self.tables.columns]
        whole = sum(work)
        named = [sum(w for w, c in zip(work, self.classes, strict=True) if c.family == f) for f in FAMILIES]
        return tuple(each / whole for each in named) if whole else USUAL_WEIGHTS

    def full_seconds(self, rank: int) -> float:
        """Return the seconds of the rank's products per iteration, by its curves, with no work taken."""
        return float(self.tables.full[rank])
