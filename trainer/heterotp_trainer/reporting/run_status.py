"""What a run shows of itself: all ranks' reports, made into the status document, the history and the final report."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from heterotp_api.policy import BalancingSettings
from heterotp_api.report import run_report
from heterotp_api.summary import summary
from heterotp_api.trainer_status import TrainerRank, TrainerStatus

from heterotp_trainer.balancing.detection import slowdowns
from heterotp_trainer.balancing.effect import Effect, effects
from heterotp_trainer.balancing.history import Observation
from heterotp_trainer.balancing.limit import RankCost, fluid_limit, speeds
from heterotp_trainer.boundary.exchange import Report, comparable
from heterotp_trainer.boundary.injection_schedule import Injecting
from heterotp_trainer.boundary.iteration_context import LATEST
from heterotp_trainer.boundary.saved_time import SavedTime, shares_of
from heterotp_trainer.boundary.stall import Stall
from heterotp_trainer.devices.phase_clock import COMPUTE, PHASES
from heterotp_trainer.devices.slowdown import refusal
from heterotp_trainer.insight.timeline import Timeline
from heterotp_trainer.insight.work import work_of
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.work_plan import WorkPlan
from heterotp_trainer.reporting.insight import Insight
from heterotp_trainer.reporting.journal import Journal
from heterotp_trainer.reporting.window import ReportWindow


class RunStatus:
    """One job as rank 0 sees it; written by the training loop, read by other threads."""

    def __init__(
        self,
        job: str,
        attempt: int,
        devices: Sequence[str],
        groups: Sequence[str],
        saved: SavedTime,
        policy: BalancingSettings,
        idle_seconds: Callable[[], float | None] = lambda: None,
        timeline: Timeline | None = None,
    ) -> None:
        """devices, groups: of each rank. saved: kept by the session. policy: in force before the first document.

        idle_seconds: see Heartbeat. timeline: empty; None: of ranks on one machine.
        """
        self.job, self.attempt = job, attempt
        self.devices, self.groups, self.saved = devices, groups, saved
        self.emulated = "emulated" in devices
        # the fields of the document that are not computed from reports; replaced as a whole, for other threads read it
        self.progress = TrainerStatus(job=job, attempt=attempt, state="starting", started_at=time.time())
        self.samples_per_iteration = 0
        self.window = ReportWindow(policy.window)
        self.work = WorkPlan()
        self.stall: Stall | None = None
        self._idle_seconds = idle_seconds
        self.effects: tuple[Effect, ...] = ()
        self.costs_now: Costs | None = None  # measured; None: before the first decision
        self.injecting = Injecting()
        self.journal = Journal(attempt, devices)
        self.insight = Insight(timeline or Timeline([""] * len(devices), iterations=policy.window))
        self.insight.under(self.work.decision_id, work_of(saved.unit_plan, ()))
        # for late reports: effects and shares by decision_id, and the slow-downs asked for in the iteration before
        self._recent: dict[int, tuple[tuple[Effect, ...], Sequence[float]]] = {}
        self._asked_before = self.injecting.asked
        self._chi: Sequence[float | None] = ()  # of each rank, as the status last showed it

    def update(self, **fields: Any) -> None:
        """Set fields of the status document that are not computed from reports."""
        self.progress = self.progress.model_copy(update=fields)

    def follow(self, policy: BalancingSettings) -> None:
        """Show medians over the window of this policy from now on."""
        self.window.resize(policy.window)

    def stalled(self, stall: Stall | None) -> None:
        """Show that no iteration ends; called by another thread than the training loop's."""
        self.stall = stall

    def take(self, reports: tuple[Report, ...]) -> None:
        """Add the reports of one iteration of all ranks; `saved` must already contain them."""
        self.window.take(reports)
        self.insight.take(reports)
        self.journal.shares(reports[0].iteration, self._under(reports)[1])

    def inject(self, injecting: Injecting) -> None:
        """Show the injections of the next iteration."""
        if injecting.asked != self.injecting.asked:
            self.window.injections_changed()
        self._asked_before, self.injecting = self.injecting.asked, injecting

    def decided(self, plan: WorkPlan, costs: Costs) -> None:
        """Show the plan of the next iteration."""
        self.effects, self.work, self.costs_now = effects(plan, costs), plan, costs
        unit_plan = plan.ownership.unit_plan
        owned = shares_of(unit_plan) if unit_plan is not None else self.saved.shares
        self.insight.under(plan.decision_id, work_of(unit_plan or self.saved.unit_plan, self.effects))
        newest = sorted(self._recent)[-LATEST:]  # a device may report that many iterations later
        self._recent = {each: self._recent[each] for each in newest} | {plan.decision_id: (self.effects, owned)}

    def chi(self) -> Sequence[float | None]:
        """Return how slow each rank is, as the status shows it, and keep it for the history."""
        medians = self.window.medians()
        self._chi = self._slowdowns(medians) if medians else [None] * len(self.devices)
        return self._chi

    def explain(self) -> None:
        """Look for the causes of the window that was judged last, with chi as it was kept."""
        asked = [chi for chi, _ in self.injecting.asked] or [1.0] * len(self.devices)
        self.insight.explain(self._chi, asked)

    def limit_seconds(self) -> float | None:
        """Return the fluid limit of an iteration; None before the first measured one."""
        return fluid_limit(self.costs(), self.work.base_wait if self.work.migrates else None)

    def moved(self, seconds: float) -> None:
        """Count a move of units that took `seconds`."""
        self.update(moves=self.progress.moves + 1, moved_seconds=self.progress.moved_seconds + seconds)

    def effect(self, rank: int) -> Effect:
        """Return a rank's part of the plan in force."""
        return self.effects[rank] if self.effects else Effect()

    @property
    def step_seconds(self) -> Sequence[float]:
        """Seconds of every measured iteration, oldest first."""
        return self.window.step_seconds

    def untouched_seconds(self) -> float | None:
        """Return the window's median T_untouched (see SavedTime), in seconds; None where the plan changes nothing."""
        if not self.saved.changes_iterations(self.work):
            return None
        recent = self.window.of_decision(self.work.decision_id)
        return statistics.median(self.saved.untouched(reports, self.work) for reports in recent) if recent else None

    def costs(self) -> list[RankCost]:
        """Return each rank's cost of an iteration with its work not reduced; empty before the first measured one."""
        return [
            RankCost(share, seconds["full"], seconds["unit"], seconds["fixed"], seconds["wait"])
            for share, seconds in zip(self.saved.shares, self.window.medians(), strict=False)
        ]

    def ranks(self) -> tuple[TrainerRank, ...]:
        """Return the status document's entry of each rank."""
        costs, medians = self.costs(), self.window.medians()
        if not costs:
            return tuple(TrainerRank(**self._known(rank)) for rank in range(len(self.devices)))
        rates = speeds(costs)
        chi = self._slowdowns(medians)
        fastest = max((rate for rate in rates if rate is not None), default=None)
        return tuple(
            TrainerRank(
                **self._known(rank),
                full_matmul_seconds=seconds["full"],
                measured_slowdown=self.window.slowdown(rank),
                compute_seconds=sum(seconds[phase] for phase in COMPUTE),
                matmul_seconds=seconds["matmul"],
                unit_seconds=cost.unit,
                fixed_seconds=cost.fixed,
                wait_seconds=cost.wait,
                data_seconds=seconds["data"],
                control_seconds=seconds["control"],
                relative_speed=rate / fastest if rate is not None and fastest else None,
                slowdown=chi[rank],
            )
            for rank, (cost, rate, seconds) in enumerate(zip(costs, rates, medians, strict=True))
        )

    def _slowdowns(self, medians: Sequence[Mapping[str, float]]) -> list[float | None]:
        """Return chi of each rank, by the speeds that the first shares were made for; None where it is not known."""

        def of(name: str) -> list[float]:
            return [each[name] for each in medians]

        seen = Observation.of(of("full"), of("unit"), of("fixed"), of("wait"), pace=of("pace_ratio"))
        known = [bool(each["full"] or each["pace_ratio"]) for each in medians]
        chi = slowdowns(seen, self.saved.unit_plan, self.saved.first_slowness, self.costs_now)
        return [float(value) if there else None for value, there in zip(chi, known, strict=True)]

    def _known(self, rank: int) -> dict[str, Any]:
        """Return the fields of a rank that need no measurement."""
        effect, unit_plan = self.effect(rank), self.saved.unit_plan
        asked, mode = self.injecting.asked[rank] if self.injecting.asked else (1.0, None)
        return {
            "rank": rank,
            "tp_rank": rank,
            "device": self.devices[rank],
            "share": self.saved.shares[rank],
            "heads": unit_plan.counts("heads")[rank],
            "hidden_units": unit_plan.counts("ffn")[rank],
            "vocabulary_rows": unit_plan.counts("vocab")[rank],
            "pruned_ratio": effect.pruned,
            "migrated_ratio": effect.migrated,
            "columns_out": effect.columns_out,
            "columns_in": effect.columns_in,
            "migrated_bytes": effect.bytes_out,
            "injected_slowdown": asked,
            "injection_problem": refusal(mode, self.devices[rank].partition(":")[0]) if asked > 1 else "",
            "straggler": rank in self.work.stragglers,
            "blamed_seconds": self.insight.of_rank(rank),
        }

    def status(self) -> TrainerStatus:
        """Return the status document."""
        now, work, stall = self.progress, self.work, self.stall
        seconds = self.window.iteration_seconds()
        left = None if now.total_iterations is None else now.total_iterations - now.iteration
        computed: dict[str, Any] = {
            "iteration_seconds": seconds,
            "samples_per_second": self.samples_per_iteration / seconds if seconds else None,
            "eta_seconds": seconds * left if seconds is not None and left is not None else None,
            "idle_seconds": self._idle_seconds(),
            "strategy": work.settings.strategy if work.settings is not None else "None",
            "decision_id": work.explained_id,
            "predicted_iteration_seconds": work.predicted_seconds,
            "reason": work.reason,
            "plan_hash": self.saved.unit_plan.hash,
            "limit_iteration_seconds": self.limit_seconds(),
            "untouched_iteration_seconds": self.untouched_seconds(),
            "saved_seconds": self.saved.seconds,
            "deleted_share": self.saved.deleted_iterations / now.iteration if now.iteration else 0.0,
            "emulated": self.emulated,
            "ranks": self.ranks(),
            "injections": self.injecting.states(),
            **self.insight.fields(),
            "lease_expired": self.injecting.lapsed,
            **(
                {}
                if stall is None
                else {"stalled_seconds": stall.seconds, "stalled_by": stall.culprits, "stall": stall.where}
            ),
        }
        return now.model_copy(update=computed)

    def history_line(self, reports: tuple[Report, ...], loss: float | None) -> dict[str, Any]:
        """Return the history's entry of one iteration; see docs/report.md."""
        under = self._under(reports)
        lost, late = self._lost(reports)
        ranks = [
            {
                "compute": sum(report.seconds[p] for p in COMPUTE),
                **{name: report.seconds[name] for name in PHASES},
                **self._part(rank, *under),
                "blamed": lost[rank],
            }
            for rank, report in enumerate(reports)
        ]
        return {
            "attempt": self.attempt,
            "iteration": reports[0].iteration,
            "epoch": self.progress.epoch,
            "time": time.time(),
            "iterationSeconds": sum(reports[0].seconds.values()),
            "measured": bool(reports[0].measured),
            "loss": loss,
            "accuracy": self.progress.accuracy,
            "generation": reports[0].applied,
            "decisionId": reports[0].decision_id,
            "late": late,
            "ranks": ranks,
        }

    def _lost(self, reports: Sequence[Report]) -> tuple[Sequence[float | None], dict[str, Any] | None]:
        """Return what each rank lost in the iteration of these reports, the newest, and the first to blame."""
        newest = self.insight.newest() if comparable(reports) else None
        if newest is None:
            return [None] * len(reports), None
        return newest[0], newest[1] or None

    def _under(self, reports: Sequence[Report]) -> tuple[tuple[Effect, ...], Sequence[float]]:
        """Return each rank's effect (empty: none) and share of the units in the iteration of these reports."""
        return self._recent.get(reports[0].decision_id, ((), self.saved.shares))

    def _part(self, rank: int, effects: Sequence[Effect], shares: Sequence[float]) -> dict[str, float | None]:
        """Return a rank's part in the work of the newest reported iteration."""
        effect = effects[rank] if effects else Effect()
        return {
            "share": shares[rank],
            "chi": self._chi[rank] if self._chi else None,
            "pruned": effect.pruned,
            "migrated": effect.migrated,
            "received": effect.received / len(self.devices),
            "injected": self._asked_before[rank][0] if self._asked_before else 1.0,
        }

    def report(self) -> dict[str, Any]:
        """Return report.json, whose keys docs/report.md documents."""
        times, journal = summary(self.step_seconds), self.journal.document()
        return run_report(self.status(), self.groups, times, journal, time.time()).document()
