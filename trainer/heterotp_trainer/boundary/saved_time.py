"""The seconds that balancing saved over the run, counted from what each measured iteration itself took, and its cost:
the work that was deleted.
"""

from collections.abc import Sequence

from heterotp_trainer.balancing.prediction import pruned_share
from heterotp_trainer.boundary.exchange import Report, comparable
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.plans.work_plan import WorkPlan


def shares_of(plan: UnitPlan) -> list[float]:
    """Return every rank's share of the matmul work, 0..1."""
    return [plan.share(rank) for rank in range(plan.ranks)]


class SavedTime:
    """Sum of T_untouched - T over the measured iterations that a plan changes; and which rank owned which units then.

    T_untouched is what the iteration would take with no work reduced and the shares that the attempt began with: the
    slowest rank's matmul + unit + fixed seconds, and the wait, data and control seconds that remain. Reports arrive one
    boundary late: `shares` and `unit_plan` change with the first report of the new unit plan.
    """

    def __init__(self, unit_plan: UnitPlan, slowness: Sequence[float] = ()) -> None:
        """unit_plan: the one that the attempt begins with; slowness: by rank, for which it was made; empty: equal."""
        self.seconds = 0.0
        self.first_slowness = tuple(slowness)
        self.deleted_iterations = 0.0  # sum over all iterations of the share of all ranks' work that was deleted
        self._deleted: dict[int, float] = {}  # that share by decision_id, of the newest plan and the one before
        self.first_unit_plan = self.unit_plan = unit_plan
        self.shares = shares_of(unit_plan)
        self.work = self._former = WorkPlan()  # the newest plan, and the one before, to which late reports belong
        self._calibrated: tuple[list[float], list[float]] | None = None  # see _set_costs
        self._coming: tuple[int, UnitPlan, Costs] | None = None  # from this decision_id on: unit plan and its costs

    def decided(self, plan: WorkPlan, costs: Costs) -> None:
        """Store the plan of the next iteration and the costs it was decided with."""
        if plan is self.work:
            return
        if plan.decision_id != self.work.decision_id:
            self._former = self.work
        self.work = plan
        deleted = pruned_share(costs, plan.reductions_by_rank) if plan.reductions else 0.0
        self._deleted = {**self._deleted_under(self._former.decision_id), plan.decision_id: deleted}
        unit_plan = plan.ownership.unit_plan
        if unit_plan is None or unit_plan == self.unit_plan:
            self._set_costs(costs)
        else:
            self._coming = plan.decision_id, unit_plan, costs

    def take(self, reports: Sequence[Report]) -> None:
        """Count all ranks' reports of one iteration; none are left out, and of not comparable ones the seconds."""
        if not reports:
            return
        self.deleted_iterations += self._deleted.get(reports[0].decision_id, 0.0)
        if not comparable(reports):
            return
        self._change_owners(reports[0].decision_id)
        for plan in (self.work, self._former):
            if plan.decision_id == reports[0].decision_id and self.changes_iterations(plan):
                self.seconds += self.untouched(reports, plan) - sum(reports[0].seconds.values())
                return

    def _deleted_under(self, decision_id: int) -> dict[int, float]:
        return {decision_id: self._deleted[decision_id]} if decision_id in self._deleted else {}

    def changes_iterations(self, plan: WorkPlan) -> bool:
        """Return whether a plan reduces a rank's work, or was made for other owners than the first."""
        unit_plan = plan.ownership.unit_plan
        return bool(plan.reductions) or (unit_plan is not None and unit_plan != self.first_unit_plan)

    def _change_owners(self, decision_id: int) -> None:
        if self._coming is None or decision_id < self._coming[0]:
            return
        _, self.unit_plan, costs = self._coming
        self.shares, self._coming = shares_of(self.unit_plan), None
        self._set_costs(costs)

    def _set_costs(self, costs: Costs) -> None:
        """Store each rank's full matmul seconds at calibration: with the units it owns now, and with its first ones."""
        self._calibrated = None
        if self.unit_plan != self.first_unit_plan:
            first = costs.owned_by(self.first_unit_plan)
            self._calibrated = costs.tables.full.tolist(), first.tables.full.tolist()

    def untouched(self, reports: Sequence[Report], plan: WorkPlan) -> float:
        """Return T_untouched of one iteration, in seconds: by its own times, so that past slow-downs save nothing."""
        full = self.with_first_shares([each.full for each in reports], [each.pace_ratio for each in reports])
        growth = [self._unit_growth(rank) for rank in range(len(reports))]
        slowest = max(
            matmul + each.seconds["unit"] * more + each.seconds["fixed"]
            for matmul, more, each in zip(full, growth, reports, strict=True)
        )
        return slowest + (plan.base_wait or 0.0) + reports[0].seconds["data"] + reports[0].seconds["control"]

    def with_first_shares(self, full: Sequence[float], pace_ratio: Sequence[float]) -> list[float]:
        """Return each rank's full matmul seconds as they would be with the units that it owned at first."""
        if self._calibrated is None:
            return list(full)
        now, then = self._calibrated
        paces = [p or (f / n if n else 1.0) for f, n, p in zip(full, now, pace_ratio, strict=True)]
        return [pace * seconds for pace, seconds in zip(paces, then, strict=True)]

    def _unit_growth(self, rank: int) -> float:
        """Return a rank's first share over its share now; 1 where it owns nothing now."""
        return self.first_unit_plan.share(rank) / self.shares[rank] if self.shares[rank] else 1.0
