"""The metrics of a rank and of the job, in a registry of their own.

A metric per rank is one entry of RANK_METRICS, set by a method of RankMetrics. Labels `namespace`, `heterotpjob` and
`node` come from the scrape. Every label value starts at 0, else rate() would miss the first step.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from heterotp_api.stages import STAGES
from heterotp_api.strategies import Strategy
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Enum,
    Gauge,
    Histogram,
    Info,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder

from heterotp_trainer.balancing.effect import Effect
from heterotp_trainer.boundary.control_channel import RefusalReason
from heterotp_trainer.devices.phase_clock import PHASES
from heterotp_trainer.plans.work_plan import WorkPlan

BASIC_PHASES = ("matmul", "fixed", "wait")
STEP_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
STRATEGIES: tuple[str, ...] = get_args(Strategy)
disable_created_metrics()


@dataclass(frozen=True)
class RankMetric:
    """One metric of every rank; it has the label `rank` and those named here. level basic: exported at both levels."""

    key: str
    kind: type[Counter] | type[Gauge]
    name: str
    text: str
    labels: tuple[str, ...] = ()
    level: Literal["basic", "full"] = "full"


RANK_METRICS = (
    RankMetric(
        "phase",
        Counter,
        "heterotp_phase_seconds_total",
        "Seconds by phase; all phases sum to wall time (level basic: the main three).",
        ("phase",),
        level="basic",
    ),
    RankMetric("iterations", Counter, "heterotp_iterations_total", "Iterations done.", level="basic"),
    RankMetric(
        "timestamp",
        Gauge,
        "heterotp_last_iteration_timestamp_seconds",
        "When the last iteration ended.",
        level="basic",
    ),
    RankMetric(
        "generation",
        Gauge,
        "heterotp_policy_generation",
        "Generation of the control document in force.",
        level="basic",
    ),
    RankMetric("pruned", Gauge, "heterotp_pruned_ratio", "Share of the rank's columns that no rank computes."),
    RankMetric("migrated", Gauge, "heterotp_migrated_ratio", "Share of the rank's columns that others compute."),
    RankMetric("columns", Gauge, "heterotp_migrated_columns", "Columns per iteration that migrate.", ("direction",)),
    RankMetric("bytes", Counter, "heterotp_migrated_bytes_total", "Bytes moved by migration.", ("direction",)),
    RankMetric(
        "injected",
        Gauge,
        "heterotp_injected_slowdown_ratio",
        "Slow-down asked for by injections.",
        level="basic",
    ),
    RankMetric(
        "slowdown",
        Gauge,
        "heterotp_slowdown_ratio",
        "chi: how many times longer the rank's products take than those of its work should; as in the status.",
    ),
    RankMetric(
        "blamed",
        Counter,
        "heterotp_blamed_seconds_total",
        "Seconds that the other ranks waited for this one, by the stage in which it was late.",
        ("stage",),
    ),
    RankMetric(
        "cause",
        Gauge,
        "heterotp_slow_cause",
        "Why the rank is slow: share of time, 0 to 1, by cause; causes that do not hold now have no series.",
        ("cause",),
    ),
    RankMetric("work", Counter, "heterotp_work_units_total", "Work done; 1 an iteration is what the rank began with."),
)


class RankMetrics:
    """The metrics that every rank exports; level basic leaves out those of level full, and most phases."""

    def __init__(self, rank: int, level: str) -> None:
        self.registry = CollectorRegistry()
        self._rank = str(rank)
        self._phases = PHASES if level == "full" else BASIC_PHASES
        self._effect = Effect()
        self._causes: set[str] = set()
        self._metrics: dict[str, Any] = {
            each.key: each.kind(
                each.name,
                each.text,
                ("rank", *each.labels),
                registry=self.registry if level in ("full", each.level) else None,
            )
            for each in RANK_METRICS
        }
        self._phase = {name: self._series("phase", name) for name in self._phases}
        self._blamed: dict[str, Any] = {stage: self._series("blamed", stage) for stage in STAGES}
        self._iterations, self._timestamp = self._series("iterations"), self._series("timestamp")
        self.generation = self._series("generation")
        self._pruned, self._migrated, self._work = (self._series(key) for key in ("pruned", "migrated", "work"))
        self._columns, self._bytes = (
            (self._series(key, "in"), self._series(key, "out")) for key in ("columns", "bytes")
        )

    def _series(self, key: str, *labels: str) -> Any:
        """Return this rank's series of a metric, from then on exported."""
        return self._metrics[key].labels(self._rank, *labels)

    def balance(self, effect: Effect) -> None:
        """Set the rank's part of the plan in force."""
        self._effect = effect
        self._pruned.set(effect.pruned)
        self._migrated.set(effect.migrated)
        for series, columns in zip(self._columns, (effect.columns_in, effect.columns_out), strict=True):
            series.set(columns)

    def injected(self, chi: float) -> None:
        """Set the slow-down asked for; a rank without one exports no series."""
        self._set_known("injected", chi if chi > 1 else None)

    def slowdown(self, chi: float | None) -> None:
        """Set how slow the rank is; None: not known, and no series is exported."""
        self._set_known("slowdown", chi)

    def blamed(self, seconds: Mapping[str, float]) -> None:
        """Count what the rank lost the others, by stage."""
        for stage, lost in seconds.items():
            self._blamed[stage].inc(lost)

    def causes(self, shares: Mapping[str, float]) -> None:
        """Set why the rank is slow, share of time by kind; causes that do not hold any more export no series."""
        for kind in self._causes.difference(shares):
            self._metrics["cause"].remove(self._rank, kind)
        for kind, share in shares.items():
            self._series("cause", kind).set(share)
        self._causes = set(shares)

    def _set_known(self, key: str, value: float | None) -> None:
        if value is not None:
            self._series(key).set(value)
        elif (self._rank,) in self._metrics[key]._metrics:
            self._metrics[key].remove(self._rank)

    def iteration(self, seconds: dict[str, float], work: float, now: float) -> None:
        """Count one iteration: seconds by phase, work (1: what the rank began with), wall-clock time of its end."""
        for name, series in self._phase.items():
            series.inc(seconds[name])
        self._iterations.inc()
        for series, nbytes in zip(self._bytes, (self._effect.bytes_in, self._effect.bytes_out), strict=True):
            series.inc(nbytes)
        self._timestamp.set(now)
        self._work.inc(work)

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """Return the exposition and its content type, as an Accept header asks; only OpenMetrics has exemplars."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type


class JobMetrics:
    """The metrics of the whole job, exported by rank 0 only."""

    def __init__(self, registry: CollectorRegistry, ranks: int, attempt: int, backend: str) -> None:
        def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        self.step = Histogram(
            "heterotp_step_seconds", "Seconds of an iteration.", registry=registry, buckets=STEP_BOUNDS
        )
        self.loss = gauge("heterotp_loss", "Loss.", ("split",))
        self.accuracy = gauge("heterotp_accuracy_ratio", "Accuracy, 0 to 1.", ("split",))
        self._perplexity = gauge("heterotp_perplexity", "exp(loss) of a language model.", ("split",))
        self.samples = Counter("heterotp_samples_total", "Training samples seen.", registry=registry)
        self.epoch = gauge("heterotp_epoch", "Epoch, from 0.")
        gauge("heterotp_world_ranks", "Ranks that the job should have.").set(ranks)
        self._live = gauge("heterotp_live_ranks", "Ranks that live; fewer than world ranks: runPolicy.elastic.")
        self._live.set(ranks)
        self._unprotected = gauge(
            "heterotp_unprotected_ranks",
            "Ranks whose units exist once only, so that the loss of one ends the run (NaN without runPolicy.elastic).",
        )
        self._unprotected.set(math.nan)
        gauge("heterotp_attempt", "Attempt of the gang, from 1.").set(attempt)
        self.control_errors = Counter(
            "heterotp_control_errors_total", "Control documents refused.", ["reason"], registry=registry
        )
        for reason in get_args(RefusalReason):
            self.control_errors.labels(reason)
        self.checkpoint = gauge("heterotp_checkpoint_seconds", "Seconds that the last checkpoint took.")
        self.limit = gauge("heterotp_limit_seconds", "Fluid limit of an iteration, seconds.")
        self._moves = Counter("heterotp_reshards_total", "Times that units changed rank.", registry=registry)
        self._move_seconds = Counter("heterotp_reshard_seconds_total", "Seconds that it took.", registry=registry)
        self.predicted = gauge("heterotp_plan_predicted_seconds", "Iteration predicted for the plan in force, seconds.")
        self.predicted.set(math.nan)  # NaN: nothing is predicted yet
        self._decision = 0
        self.updates = Counter("heterotp_policy_updates_total", "Decisions taken.", ["strategy"], registry=registry)
        for strategy in STRATEGIES:
            self.updates.labels(strategy)
        self.strategy = Enum(
            "heterotp_policy_strategy",
            "Balancing strategy in force.",
            states=list(STRATEGIES),
            registry=registry,
        )
        versions = {"version": _version(), "torch": str(torch.__version__), "backend": backend}
        Info("heterotp_build", "Versions.", registry=registry).info(versions)

    def gang(self, live: int, unprotected: int) -> None:
        """Set who is left of a gang that may lose ranks."""
        self._live.set(live)
        self._unprotected.set(unprotected)

    def evaluated(self, loss: float, accuracy: float | None, perplexity: float | None) -> None:
        """Set the results of an evaluation; accuracy and perplexity None: not known, and no series is exported."""
        self.loss.labels("eval").set(loss)
        for gauge, value in ((self.accuracy, accuracy), (self._perplexity, perplexity)):
            if value is not None:
                gauge.labels("eval").set(value)
            elif ("eval",) in gauge._metrics:
                gauge.remove("eval")

    def stepped(self, seconds: float, iteration: int) -> None:
        """Count an iteration's seconds, with its number as an exemplar."""
        self.step.observe(seconds, {"step": str(iteration)})

    def moved(self, seconds: float) -> None:
        """Count a move of units that took `seconds`."""
        self._moves.inc()
        self._move_seconds.inc(seconds)

    def decided(self, plan: WorkPlan) -> None:
        """Count a new plan; a plan with the same decision_id has only new prices."""
        strategy = plan.settings.strategy if plan.settings is not None else "None"
        if plan.decision_id != self._decision:
            self.updates.labels(strategy).inc()
        self._decision = plan.decision_id
        self.strategy.state(strategy)
        self.predicted.set(math.nan if plan.predicted_seconds is None else plan.predicted_seconds)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("heterotp")
    except PackageNotFoundError:
        return "source"
