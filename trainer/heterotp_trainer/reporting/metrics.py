"""A rank's metrics in a registry of its own; names and labels as docs and dashboards expect them.

Labels `namespace`, `heterotpjob` and `node` come from the scrape. Every label value starts at 0, or rate()
would miss the first step.
"""

import math
from typing import TypeVar, get_args

import torch
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
from heterotp_trainer.devices.phase_clock import PHASES
from heterotp_trainer.plans.work_plan import WorkPlan

BASIC_PHASES = ("matmul", "fixed", "wait")
STEP_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

_Metric = TypeVar("_Metric", Counter, Gauge)
disable_created_metrics()


class RankMetrics:
    """Metrics that every rank exports; level basic leaves out all but times, iterations and generation."""

    def __init__(self, rank: int, level: str) -> None:
        self.registry = CollectorRegistry()
        self._rank, self._full = str(rank), level == "full"
        self._phases = PHASES if level == "full" else BASIC_PHASES
        self._phase = Counter(
            "heterotp_phase_seconds_total",
            "Seconds by phase; all phases sum to wall time (level basic: the main three).",
            ["rank", "phase"],
            registry=self.registry,
        )
        self._iterations = self._counter("heterotp_iterations_total", "Iterations done.")
        self._stamp = self._gauge("heterotp_last_iteration_timestamp_seconds", "When the last iteration ended.")
        self.generation = self._gauge("heterotp_policy_generation", "Generation of the control document in force.")
        self._pruned = self._detail(Gauge, "heterotp_pruned_ratio", "Share of the rank's columns that nobody computes.")
        self._migrated = self._detail(
            Gauge, "heterotp_migrated_ratio", "Share of the rank's columns that others compute."
        )
        self._columns = self._directed(Gauge, "heterotp_migrated_columns", "Columns per iteration that migrate.")
        self._bytes = self._directed(Counter, "heterotp_migrated_bytes_total", "Bytes moved by migration.")
        self._injected = Gauge(
            "heterotp_injected_slowdown_ratio", "Slow-down asked for by injections.", ["rank"], registry=self.registry
        )
        self._effect = Effect()
        for name in self._phases:
            self._phase.labels(self._rank, name)
        self._work = self._detail(
            Counter, "heterotp_work_units_total", "Work done; 1 an iteration is what the rank began with."
        )

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, ["rank"], registry=self.registry).labels(self._rank)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, ["rank"], registry=self.registry).labels(self._rank)

    def _detail(self, kind: type[_Metric], name: str, text: str) -> _Metric:
        """Return a metric that is exported at level full alone."""
        metric = kind(name, text, ["rank"], registry=self.registry if self._full else None)
        return metric.labels(self._rank)

    def _directed(self, kind: type[_Metric], name: str, text: str) -> tuple[_Metric, _Metric]:
        """Return the metric with direction in and out; exported at level full alone."""
        metric = kind(name, text, ["rank", "direction"], registry=self.registry if self._full else None)
        return metric.labels(self._rank, "in"), metric.labels(self._rank, "out")

    def balance(self, effect: Effect) -> None:
        """Take the rank's part of the plan in force."""
        self._effect = effect
        self._pruned.set(effect.pruned)
        self._migrated.set(effect.migrated)
        for metric, columns in zip(self._columns, (effect.columns_in, effect.columns_out), strict=True):
            metric.set(columns)

    def injected(self, chi: float) -> None:
        """Take the slow-down asked for; a rank without one exports none."""
        if chi > 1:
            self._injected.labels(self._rank).set(chi)
        elif (self._rank,) in self._injected._metrics:
            self._injected.remove(self._rank)

    def iteration(self, seconds: dict[str, float], work: float, now: float) -> None:
        """Count one iteration: seconds by phase, work (1: what the rank began with), wall-clock time of its end."""
        for name in self._phases:
            self._phase.labels(self._rank, name).inc(seconds[name])
        self._iterations.inc()
        for metric, nbytes in zip(self._bytes, (self._effect.bytes_in, self._effect.bytes_out), strict=True):
            metric.inc(nbytes)
        self._stamp.set(now)
        self._work.inc(work)

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """Return the exposition and its content type, as an Accept header asks; only OpenMetrics has exemplars."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type


class JobMetrics:
    """Metrics of the whole job, on rank 0 alone."""

    def __init__(self, registry: CollectorRegistry, ranks: int, attempt: int, backend: str) -> None:
        def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        self.step = Histogram(
            "heterotp_step_seconds", "Seconds of an iteration.", registry=registry, buckets=STEP_BOUNDS
        )
        self.loss = gauge("heterotp_loss", "Loss.", ("split",))
        self.accuracy = gauge("heterotp_accuracy_ratio", "Accuracy, 0 to 1.", ("split",))
        self.samples = Counter("heterotp_samples_total", "Training samples seen.", registry=registry)
        self.epoch = gauge("heterotp_epoch", "Epoch, from 0.")
        gauge("heterotp_world_ranks", "Ranks that the job should have.").set(ranks)
        gauge("heterotp_attempt", "Attempt of the gang, from 1.").set(attempt)
        self.control_errors = Counter(
            "heterotp_control_errors_total", "Control documents refused.", ["reason"], registry=registry
        )
        for reason in ("malformed", "newer", "invalid", "older"):
            self.control_errors.labels(reason)
        self.checkpoint = gauge("heterotp_checkpoint_seconds", "Seconds that the last checkpoint took.")
        self.limit = gauge("heterotp_limit_seconds", "Fluid limit of an iteration, seconds.")
        self._moves = Counter("heterotp_reshards_total", "Times that units changed rank.", registry=registry)
        self._move_seconds = Counter("heterotp_reshard_seconds_total", "Seconds that it took.", registry=registry)
        self.predicted = gauge("heterotp_plan_predicted_seconds", "Iteration predicted for the plan in force, seconds.")
        self.predicted.set(math.nan)  # nothing is predicted yet, which is not a prediction of no time
        self._decision = 0
        self.updates = Counter("heterotp_policy_updates_total", "Decisions taken.", ["strategy"], registry=registry)
        for strategy in get_args(Strategy):
            self.updates.labels(strategy)
        self.strategy = Enum(
            "heterotp_policy_strategy",
            "Balancing strategy in force.",
            states=list(get_args(Strategy)),
            registry=registry,
        )
        versions = {"version": _version(), "torch": str(torch.__version__), "backend": backend}
        Info("heterotp_build", "Versions.", registry=registry).info(versions)

    def stepped(self, seconds: float, iteration: int) -> None:
        """Count an iteration's time, with its number as an exemplar: which one was it that took so long?"""
        self.step.observe(seconds, {"step": str(iteration)})

    def moved(self, seconds: float) -> None:
        """Count a move of units."""
        self._moves.inc()
        self._move_seconds.inc(seconds)

    def decided(self, plan: WorkPlan) -> None:
        """Take a plan; one that keeps its number was only priced anew."""
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
