"""What a run shows of itself: a window of all ranks' reports, made into status, history and the final report."""

import statistics
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from heterotp_api.report import run_report
from heterotp_api.summary import summary
from heterotp_api.trainer_status import TrainerRank, TrainerState, TrainerStatus

from heterotp_trainer.balancing.detection import slowdowns
from heterotp_trainer.balancing.effect import Effect, effects
from heterotp_trainer.balancing.limit import RankCost, fluid_limit, speeds
from heterotp_trainer.boundary.exchange import Report, comparable
from heterotp_trainer.boundary.injection_schedule import Injecting
from heterotp_trainer.devices.phase_clock import COMPUTE, PHASES
from heterotp_trainer.devices.slowdown import refusal
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.plans.work_plan import WorkPlan

WINDOW = 5  # iterations of a median
MOST_STEPS = 100_000  # the newest iterations, of which the report gives minimum, median and maximum
MEDIANS = (*PHASES, "full", "pace_ratio")


def shares_of(plan: UnitPlan) -> list[float]:
    """Return every rank's share of the matmul work, 0..1."""
    return [plan.share(rank) for rank in range(plan.ranks)]


def _value(report: Report, name: str) -> float:
    return report.seconds[name] if name in PHASES else float(getattr(report, name))


@dataclass
class Progress:
    """The numbers that change as training goes on; written by the training loop, read by other threads."""

    state: TrainerState = "starting"
    message: str = ""
    epoch: int = 0
    iteration: int = 0
    total_iterations: int | None = None
    resumed_from: int | None = None
    loss: float | None = None
    accuracy: float | None = None
    samples_per_iteration: int = 0
    applied_generation: int = 0
    control_generation: int = 0
    control_error: str = ""


@dataclass
class RunStatus:
    """One job as rank 0 sees it."""

    job: str
    attempt: int
    devices: Sequence[str]
    groups: Sequence[str]
    shares: Sequence[float]
    plan_hash: str
    emulated: bool
    window: int = WINDOW
    started_at: float = field(default_factory=time.time)
    progress: Progress = field(default_factory=Progress)
    work: WorkPlan = field(default_factory=WorkPlan)
    first: UnitPlan | None = None  # who owned what at the start of the attempt
    _former: WorkPlan = field(default_factory=WorkPlan)  # the plan before
    owned: UnitPlan | None = None  # who owns what, as far as reports tell of it
    costs_known: Costs | None = None
    _coming: tuple[int, UnitPlan, Costs] | None = None  # from which decision on others own the units
    moves: int = 0  # of units, in this attempt
    moved_seconds: float = 0.0
    effects: tuple[Effect, ...] = ()
    injecting: Injecting = field(default_factory=Injecting)
    _injected: int = 0  # measured iterations under the slow-downs that are asked for now, and one before
    saved_seconds: float = 0.0  # by balancing, in measured iterations of the whole run
    step_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_STEPS))  # measured iterations only
    _recent: deque[tuple[Report, ...]] = field(default_factory=deque)

    def take(self, reports: tuple[Report, ...]) -> None:
        """Take the reports of one iteration of all ranks."""
        if not comparable(reports):
            return
        self._injected += 1
        self._take_over(reports[0].decision_id)
        self.step_seconds.append(sum(reports[0].seconds.values()))
        if (plan := self._relieving(reports[0])) is not None:
            self.saved_seconds += self._untouched(reports, plan) - self.step_seconds[-1]
        if self._recent and reports[0].decision_id != self._recent[-1][0].decision_id:
            self._recent.clear()  # medians are of one plan
        self._recent.append(reports)
        if len(self._recent) > self.window:
            self._recent.popleft()

    def _relieving(self, report: Report) -> WorkPlan | None:
        """Return the plan of the iteration that a report is of, if it took work from a rank: reports come late."""
        plans = (
            plan for plan in (self.work, self._former) if self._acts(plan) and plan.decision_id == report.decision_id
        )
        return next(plans, None)

    def _acts(self, plan: WorkPlan) -> bool:
        """Return whether a plan, or who owns what under it, makes iterations other than they would be."""
        shards = plan.ownership.shards
        return bool(plan.reductions) or (self.first is not None and shards is not None and shards != self.first)

    def _take_over(self, decision_id: int) -> None:
        """Show new owners from the first report under them on: shares and times belong together."""
        if self._coming is None or decision_id < self._coming[0]:
            return
        _, self.owned, self.costs_known = self._coming
        self.shares, self.plan_hash = shares_of(self.owned), self.owned.hash
        self._coming = None

    def _untouched(self, reports: tuple[Report, ...], plan: WorkPlan) -> float:
        """Return what an iteration would have taken with nothing taken from anybody and the first shares: the slowest
        rank's T hat.

        Every iteration counts by its own times, so that a slow-down that has ended saves nothing any more.
        """
        full = self._with_first_shares([each.full for each in reports], [each.pace_ratio for each in reports])
        grown = [self._grown(rank) for rank in range(len(reports))]
        slowest = max(
            matmul + each.seconds["unit"] * more + each.seconds["fixed"]
            for matmul, more, each in zip(full, grown, reports, strict=True)
        )
        return slowest + (plan.base_wait or 0.0) + reports[0].seconds["data"] + reports[0].seconds["control"]

    def _with_first_shares(self, full: Sequence[float], pace_ratio: Sequence[float]) -> list[float]:
        """Return what each rank's products would take with the units that it owned at first."""
        costs = self.costs_known
        if self.first is None or self.owned in (None, self.first) or costs is None:
            return list(full)
        now, then = costs.tables.full.tolist(), costs.owned_by(self.first).tables.full.tolist()
        paces = [p or (f / n if n else 1.0) for f, n, p in zip(full, now, pace_ratio, strict=True)]
        return [pace * seconds for pace, seconds in zip(paces, then, strict=True)]

    def _grown(self, rank: int) -> float:
        """Return how many times as many units a rank had at first."""
        if self.first is None or not self.shares[rank]:
            return 1.0
        return self.first.share(rank) / self.shares[rank]

    def untouched_seconds(self) -> float | None:
        """Return the median of the last window's untouched iterations; None while nothing is taken from anybody."""
        if not self._acts(self.work):
            return None
        recent = [reports for reports in list(self._recent) if reports[0].decision_id == self.work.decision_id]
        return statistics.median(self._untouched(reports, self.work) for reports in recent) if recent else None

    def inject(self, injecting: Injecting) -> None:
        """Take the injections of the next iteration."""
        if injecting.asked != self.injecting.asked:
            self._injected = 0
        self.injecting = injecting

    def _slowdown(self, rank: int) -> float | None:
        """Return chi as measured since it was asked for: matmul seconds over what they would be without; 1 without."""
        recent = list(self._recent)[-max(1, self._injected - 1) :]
        matmul = statistics.median(reports[rank].seconds["matmul"] for reports in recent)
        unslowed = statistics.median(reports[rank].unslowed for reports in recent)
        return matmul / (unslowed or matmul) if matmul else None

    def decided(self, plan: WorkPlan, costs: Costs) -> None:
        """Take the plan of the next iteration."""
        if plan.decision_id != self.work.decision_id:
            self._former = self.work
        self.effects, self.work = effects(plan, costs), plan
        shards = plan.ownership.shards
        if shards is None or shards == self.owned:
            self.costs_known = costs
        else:
            self._coming = plan.decision_id, shards, costs

    def moved(self, seconds: float) -> None:
        """Take a move of units that took so long."""
        self.moves += 1
        self.moved_seconds += seconds

    def effect(self, rank: int) -> Effect:
        """Return a rank's part of the plan in force."""
        return self.effects[rank] if self.effects else Effect()

    def _medians(self) -> list[dict[str, float]]:
        """Return each rank's median seconds by phase over the window; empty before the first measured iteration."""
        recent = list(self._recent)
        if not recent:
            return []
        return [
            {name: statistics.median(_value(reports[rank], name) for reports in recent) for name in MEDIANS}
            for rank in range(len(self.devices))
        ]

    def costs(self) -> list[RankCost]:
        """Return what an iteration costs each rank with nothing taken from it; empty before the first measured one."""
        return [
            RankCost(share, seconds["full"], seconds["unit"], seconds["fixed"], seconds["wait"])
            for share, seconds in zip(self.shares, self._medians(), strict=False)
        ]

    def ranks(self) -> tuple[TrainerRank, ...]:
        """Return all ranks as they stand in the status."""
        costs, medians = self.costs(), self._medians()
        if not costs:
            return tuple(TrainerRank(**self._place(rank)) for rank in range(len(self.devices)))
        rates = speeds(costs)
        first = self._with_first_shares([each["full"] for each in medians], [each["pace_ratio"] for each in medians])
        chi = slowdowns(np.array(first))
        fastest = max((rate for rate in rates if rate is not None), default=None)
        return tuple(
            TrainerRank(
                **self._place(rank),
                full_matmul_seconds=seconds["full"],
                measured_slowdown=self._slowdown(rank),
                compute_seconds=sum(seconds[phase] for phase in COMPUTE),
                matmul_seconds=seconds["matmul"],
                unit_seconds=cost.unit,
                fixed_seconds=cost.fixed,
                wait_seconds=cost.wait,
                data_seconds=seconds["data"],
                control_seconds=seconds["control"],
                relative_speed=rate / fastest if rate is not None and fastest else None,
                slowdown=float(chi[rank]) if first[rank] else None,
            )
            for rank, (cost, rate, seconds) in enumerate(zip(costs, rates, medians, strict=True))
        )

    def _place(self, rank: int) -> dict[str, Any]:
        """Return what is known of a rank without having measured it."""
        effect = self.effect(rank)
        asked, mode = self.injecting.asked[rank] if self.injecting.asked else (1.0, None)
        return {
            "rank": rank,
            "tp_rank": rank,
            "device": self.devices[rank],
            "share": self.shares[rank],
            "heads": self.owned.counts("heads")[rank] if self.owned is not None else 0,
            "hidden_units": self.owned.counts("ffn")[rank] if self.owned is not None else 0,
            "pruned_ratio": effect.pruned,
            "migrated_ratio": effect.migrated,
            "columns_out": effect.columns_out,
            "columns_in": effect.columns_in,
            "migrated_bytes": effect.bytes_out,
            "injected_slowdown": asked,
            "injection_problem": refusal(mode, self.devices[rank].partition(":")[0]) if asked > 1 else "",
            "straggler": rank in self.work.stragglers,
        }

    def status(self) -> TrainerStatus:
        """Return the status document."""
        now = self.progress
        seconds = statistics.median(list(self.step_seconds)[-self.window :]) if self.step_seconds else None
        left = None if now.total_iterations is None else now.total_iterations - now.iteration
        return TrainerStatus(
            job=self.job,
            attempt=self.attempt,
            state=now.state,
            message=now.message,
            started_at=self.started_at,
            epoch=now.epoch,
            iteration=now.iteration,
            total_iterations=now.total_iterations,
            resumed_from=now.resumed_from,
            iteration_seconds=seconds,
            samples_per_second=now.samples_per_iteration / seconds if seconds else None,
            loss=now.loss,
            accuracy=now.accuracy,
            eta_seconds=seconds * left if seconds is not None and left is not None else None,
            applied_generation=now.applied_generation,
            control_generation=now.control_generation,
            control_error=now.control_error,
            strategy=self.work.settings.strategy if self.work.settings is not None else "None",
            decision_id=self.work.decision_id,
            predicted_iteration_seconds=self.work.predicted_seconds,
            reason=self.work.reason,
            plan_hash=self.plan_hash,
            limit_iteration_seconds=fluid_limit(self.costs(), self.work.base_wait if self.work.migrates else None),
            untouched_iteration_seconds=self.untouched_seconds(),
            saved_seconds=self.saved_seconds,
            moves=self.moves,
            moved_seconds=self.moved_seconds,
            emulated=self.emulated,
            ranks=self.ranks(),
            injections=self.injecting.states(),
            lease_expired=self.injecting.lapsed,
        )

    def history_line(self, reports: tuple[Report, ...], loss: float | None, accuracy: float | None) -> dict[str, Any]:
        """Return the history's entry of one iteration; seconds of a rank by phase."""
        ranks = [
            {"compute": sum(report.seconds[p] for p in COMPUTE)} | {name: report.seconds[name] for name in PHASES}
            for report in reports
        ]
        return {
            "attempt": self.attempt,
            "iteration": reports[0].iteration,
            "epoch": self.progress.epoch,
            "time": time.time(),
            "iterationSeconds": sum(reports[0].seconds.values()),
            "measured": bool(reports[0].measured),
            "loss": loss,
            "accuracy": accuracy,
            "generation": reports[0].applied,
            "decisionId": reports[0].decision_id,
            "ranks": ranks,
        }

    def report(self) -> dict[str, Any]:
        """Return report.json, whose keys docs/report.md documents."""
        return run_report(self.status(), self.groups, summary(self.step_seconds)).document()
