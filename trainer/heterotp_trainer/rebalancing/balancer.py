"""Balances one rank: passes the measurements to the decision, and acts on the plan that it returns.

All of it happens at a boundary, the same one on all ranks, and follows only from the reports of the exchange.
"""

import json
import statistics
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from heterotp_api.control import LOSSLESS_AUTO
from heterotp_api.policy import BalancingSettings
from torch import nn

from heterotp_trainer.balancing.decide import decide
from heterotp_trainer.balancing.history import History, Observation
from heterotp_trainer.balancing.prediction import kept_seconds, received_seconds, refreshed
from heterotp_trainer.balancing.reshard_problem import ReshardProblem
from heterotp_trainer.boundary.exchange import Report, comparable
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.ownership import Ownership
from heterotp_trainer.plans.work_plan import WorkPlan
from heterotp_trainer.rebalancing.column_assigner import ColumnAssigner
from heterotp_trainer.rebalancing.column_selection import draw_period
from heterotp_trainer.rebalancing.cost_calibration import calibrate_costs
from heterotp_trainer.rebalancing.held_plan import HeldPlan
from heterotp_trainer.rebalancing.masked_step import step_around
from heterotp_trainer.rebalancing.speed_probe import PaceProbe
from heterotp_trainer.resharding.resharder import CompletedMove, Resharder
from heterotp_trainer.tensor_parallel.context import TPContext


def needs_costs(policy: BalancingSettings) -> bool:
    """Return whether decisions under the policy need measured costs."""
    return policy.strategy != "None"


class Balancer:
    """One rank's part in balancing; all ranks call every method at the same iteration."""

    def __init__(
        self,
        model: nn.Module,
        tp: TPContext,
        workdir: Path | None = None,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        self.tp, self._workdir = tp, workdir
        self.assigner = ColumnAssigner(model, tp)
        self.policy = LOSSLESS_AUTO
        # in force until the first control document
        self.plan = WorkPlan(settings=self.policy, ownership=Ownership(tp.unit_plan, tp.slowness))
        self.costs = Costs((), ((),) * tp.ranks, (1,) * tp.ranks)
        self.resharder = Resharder(model, tp, optimizer, self.assigner.sharded_states)
        self.pace_probe = PaceProbe(tp)
        self.moved: CompletedMove | None = None  # at the newest boundary
        self._earlier = (0, self.costs, tp.unit_plan)  # costs and shares of plans with a lower decision_id
        self.history = History(self.policy.window)
        self._before = self.plan  # the plan before; the newest reports may be of it
        self._full_work_factor: float | None = None  # of the plan in force; None: not computed yet
        self._seconds: list[float] = []  # measured iterations under the plan in force
        self._calibrated = False
        self._refresh_epoch = 0
        self._period = 0  # of the columns that are drawn at random

    @property
    def full_work_factor(self) -> float:
        """t(full) / t(executed) of this rank's products by the measured curves: M hat = M x full_work_factor.

        1 where the rank executes nothing.
        """
        if self._full_work_factor is None:
            self._full_work_factor = self._find_full_work_factor()
        return self._full_work_factor

    def _find_full_work_factor(self) -> float:
        if not self.plan.reductions or not self.costs.classes:
            return 1.0
        reductions = dict(self.plan.reductions_by_rank)
        if self.tp.rank in reductions:  # layers may prune more than the plan asks for: layerRatios maximum
            reductions[self.tp.rank] = tuple(self.assigner.taken.values())
        kept = kept_seconds(self.costs, reductions)
        received = received_seconds(self.costs, self.plan.reductions_by_rank, self.plan.receivers)
        whole, executed = self.costs.full_seconds(self.tp.rank), float((kept + received)[self.tp.rank])
        return whole / executed if whole and executed else 1.0

    def optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Step the optimizer; with maskPrunedUpdate pruned columns and their state do not change."""
        masked = self.policy.pruning.mask_pruned_update
        step_around(optimizer, self.assigner.pruned_parts() if masked else ())
        self.assigner.count_step()

    def apply(self, policy: BalancingSettings) -> None:
        """Put a policy in force for the next decision; a single rank, which has no boundaries, decides at once."""
        self.policy = policy
        if self.tp.ranks == 1:
            self.plan = decide(self.history, policy, self.plan, self.costs)
            return
        self.history = self.history.resized(policy.window)
        self.assigner.follow(policy)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds of balancing beside tensors, JSON-ready, the same on all ranks."""
        grains, seen = list(self.costs.grains), self.history.count
        held = HeldPlan(self.policy, self.plan, self.tp.unit_plan.hash, grains, seen)
        return {
            **held.to_json(),
            "refreshEpoch": self._refresh_epoch,
            "importance": self.assigner.counts,
            "period": self._period,
        }

    def prepare(self, state: Mapping[str, Any], policy: BalancingSettings) -> None:
        """Make room for the tensors of a checkpoint with this state; policy: of the newest control document.

        What was measured, and the plan, continue under the same policy only; the plan also needs the same shares.
        """
        held = HeldPlan.from_json(state)
        if held.policy != policy or self.tp.ranks == 1:
            return
        self.policy = policy
        self.history = self.history.resized(policy.window)
        self.assigner.follow(policy)
        self.assigner.resume(state["importance"])
        self._refresh_epoch = state["refreshEpoch"]
        self._period = state.get("period", 0)  # older checkpoints have none
        if held.unit_plan == self.tp.unit_plan.hash and held.plan is not None:
            kept = replace(self.plan.ownership, alternations=held.plan.ownership.alternations)
            self.plan = self._before = replace(held.plan, ownership=kept)
            self.history.count = held.observations
            self.costs = replace(self.costs, grains=tuple(held.grains))

    def resume(self) -> None:
        """Set the columns of the plan in force, after the tensors of a checkpoint were restored (all ranks)."""
        if self.plan.decision_id:
            self.assigner.apply(self.plan, self.costs, self.policy, self._period)

    def boundary(self, reports: Sequence[Report] | None, iteration: int, epoch: int) -> bool:
        """Add all ranks' reports of the iteration before to the history, decide, and carry out the plan.

        Returns whether this boundary took time that statistics must leave out.
        """
        answers = [report.ready for report in reports] if reports is not None else []
        if reports is not None and comparable(reports):
            self.history.add(self._seen(reports))
            self._refresh_link(reports[0])
        busy = self._calibrate()
        refreshed = self._refresh(iteration, epoch)
        if needs_costs(self.policy) and not self._calibrated:  # no linear was called yet
            return busy
        plan = decide(self.history, self.policy, self.plan, self.costs, answers)
        changed = plan.hash != self.plan.hash
        moved = plan.work != self.plan.work
        self._before, self.plan = (self.plan, plan) if changed else (self._before, plan)
        if changed:
            self._seconds = []
        unit_move = self._reshard(plan)
        chosen = changed or (refreshed and bool(plan.reductions))
        self._set_columns(draw_period(self.policy.pruning, iteration, epoch), chosen)
        self.pace_probe.update(self.costs)
        self.assigner.forget_calls()
        return busy or moved or unit_move  # a refresh is control time, which no decision uses

    def _set_columns(self, period: int, chosen: bool) -> None:
        """Set the columns of the plan in force where they are chosen anew; else draw those that are random."""
        self._period = period
        if chosen:
            self.assigner.apply(self.plan, self.costs, self.policy, period)
            self._full_work_factor = None
        else:
            self.assigner.redraw(period)

    def _reshard(self, plan: WorkPlan) -> bool:
        """Answer the plan's proposal and move units to its shares; return whether units moved."""
        self.resharder.answer(plan.ownership.proposal)
        after, self.moved = plan.ownership.unit_plan, None
        if after is None or after == self.tp.unit_plan:
            return False
        before, costs = self.tp.unit_plan, self.costs
        self.costs, self.moved = self.resharder.move(after, costs)
        self._earlier = plan.decision_id, costs, before
        self.history = self.history.rebased(lambda seen: ReshardProblem(costs, seen, before).seen_under(after))
        self.assigner.forget_gradients()
        return True

    def _seen(self, reports: Sequence[Report]) -> Observation:
        """Return the observation of an iteration, as it would have been under the present shares."""
        seen = observation(reports, self._migrated(reports[0]))
        decision_id, costs, unit_plan = self._earlier
        if reports[0].decision_id >= decision_id:
            return seen
        return ReshardProblem(costs, seen, unit_plan).seen_under(self.tp.unit_plan)

    def _calibrate(self) -> bool:
        """Measure costs once, before the first decision that needs them; return whether they were measured now."""
        if self._calibrated or not needs_costs(self.policy):
            return False
        classes = self.assigner.classes()
        if not any(linears.calls for linears in classes):
            return False
        with self.tp.where.busy("the cost calibration"):
            self.costs = replace(calibrate_costs(self.tp, classes), unit_move=self.resharder.prices())
        self._calibrated, self._full_work_factor = True, None
        if self._workdir is not None:
            with suppress(OSError):  # a full disk must not end the gang
                (self._workdir / "cost_calibration.json").write_text(json.dumps(asdict(self.costs)), encoding="utf-8")
        return True

    def _migrated(self, report: Report) -> bool:
        return next((p.migrates for p in (self.plan, self._before) if p.decision_id == report.decision_id), False)

    def _refresh_link(self, report: Report) -> None:
        """Correct the price of transfers by measured iterations, once per plan that migrates."""
        if report.decision_id != self.plan.decision_id:
            return
        if len(self._seconds) >= self.policy.window:
            return
        self._seconds.append(sum(report.seconds.values()))
        if len(self._seconds) == self.policy.window and self.plan.migrates:
            self.costs = refreshed(self.costs, self.plan, statistics.median(self._seconds))

    def _refresh(self, iteration: int, epoch: int) -> bool:
        """Measure importance once an epoch, or every `statisticsEvery` iterations; return whether it is kept."""
        every = self.policy.pruning.statistics_every
        due = iteration % every == 0 if every else epoch != self._refresh_epoch
        self._refresh_epoch = epoch
        return due and self.assigner.refresh()


def observation(reports: Sequence[Report], migrating: bool = False) -> Observation:
    """Return the observation of one iteration; migrating: whether columns migrated in it."""

    def of(phase: str) -> list[float]:
        return [report.seconds[phase] for report in reports]

    return Observation.of(
        [report.full for report in reports],
        of("unit"),
        of("fixed"),
        of("wait"),
        migrating,
        attention=[report.attention for report in reports],
        vocabulary=[report.vocabulary for report in reports],
        pace=[report.pace_ratio for report in reports],
        aside=[report.seconds["data"] + report.seconds["control"] for report in reports],
        executed=of("matmul"),
    )
