"""A rank's metrics in a registry of its own; names and labels as docs and dashboards expect them.

Labels `namespace`, `heterotpjob` and `node` come from the scrape. Every label value starts at 0, or rate()
would miss the first step.
"""

import torch
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Enum,
    Gauge,
    Histogram,
    Info,
    disable_created_metrics,
    generate_latest,
)

from heterotp_trainer.clock import PHASES

BASIC_PHASES = ("matmul", "fixed", "wait")
STEP_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
STRATEGIES = ("None", "ZERO", "MIG", "SEMI", "RESHARD", "AUTO")
disable_created_metrics()


class RankMetrics:
    """Metrics that every rank exports; level basic leaves out all but times, iterations and generation."""

    def __init__(self, rank: int, level: str) -> None:
        self.registry = CollectorRegistry()
        self._rank = str(rank)
        self._phases = PHASES if level == "full" else BASIC_PHASES
        self._phase = Counter(
            "heterotp_phase_seconds_total",
            "Seconds by phase; all phases sum to wall time.",
            ["rank", "phase"],
            registry=self.registry,
        )
        self._iterations = self._counter("heterotp_iterations_total", "Iterations done.")
        self._stamp = self._gauge("heterotp_last_iteration_timestamp_seconds", "When the last iteration ended.")
        self.generation = self._gauge("heterotp_policy_generation", "Generation of the control document in force.")
        for name in self._phases:
            self._phase.labels(self._rank, name)
        self._work = (
            self._counter("heterotp_work_units_total", "Shares of an even shard done.") if level == "full" else None
        )

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, ["rank"], registry=self.registry).labels(self._rank)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, ["rank"], registry=self.registry).labels(self._rank)

    def iteration(self, seconds: dict[str, float], work: float, now: float) -> None:
        """Count one iteration: seconds by phase, work in even shards, wall-clock time of its end."""
        for name in self._phases:
            self._phase.labels(self._rank, name).inc(seconds[name])
        self._iterations.inc()
        self._stamp.set(now)
        if self._work is not None:
            self._work.inc(work)

    def text(self) -> bytes:
        """Return the exposition."""
        return generate_latest(self.registry)


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
        gauge("heterotp_attempt", "Attempt of the gang, from 0.").set(attempt)
        self.control_errors = Counter(
            "heterotp_control_errors_total", "Control documents refused.", ["reason"], registry=registry
        )
        for reason in ("malformed", "newer", "invalid", "older"):
            self.control_errors.labels(reason)
        self.checkpoint = gauge("heterotp_checkpoint_seconds", "Seconds that the last checkpoint took.")
        self.limit = gauge("heterotp_limit_seconds", "Fluid limit of an iteration, seconds.")
        self.strategy = Enum(
            "heterotp_policy_strategy", "Balancing strategy in force.", states=list(STRATEGIES), registry=registry
        )
        versions = {"version": _version(), "torch": str(torch.__version__), "backend": backend}
        Info("heterotp_build", "Versions.", registry=registry).info(versions)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("heterotp")
    except PackageNotFoundError:
        return "source"
