"""The operator's own metrics, all in one registry that nothing else writes to."""

from collections import Counter as Count
from collections.abc import Iterable
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, get_args

from heterotp_api import reasons
from heterotp_api.conditions import FAILED, RESTARTING, RUNNING, SUCCEEDED
from heterotp_api.status import ENDED_PHASES, PHASES
from heterotp_api.strategies import Strategy
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)

from heterotp_operator.queue import Key

Json = dict[str, Any]

USUAL_RESULTS = (
    SUCCEEDED,
    reasons.BACKOFF_LIMIT_EXCEEDED,
    reasons.DEADLINE_EXCEEDED,
    reasons.FAILURE_RULE,
    reasons.NON_FINITE_LOSS,
)
USUAL_CAUSES = (
    reasons.CONTAINER_ERROR,
    reasons.CONTAINER_OOM_KILLED,
    reasons.POD_DELETED,
    reasons.NO_PROGRESS,
)  # of a restart
RECONCILE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
disable_created_metrics()  # type: ignore[no-untyped-call]
STARTUP_BUCKETS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)


def build_version() -> str:
    """Return the installed version, "unknown" when run from a checkout."""
    try:
        return version("heterotp")
    except PackageNotFoundError:
        return "unknown"


def _reason(status: Json, kind: str) -> str:
    conditions = status.get("conditions") or ()
    return next((c.get("reason") or kind for c in conditions if c["type"] == kind), kind)


def _seconds(time: str | None) -> float | None:
    """Return a Kubernetes time as unix seconds."""
    return datetime.fromisoformat(time).timestamp() if time else None


class QueueMetrics:
    """Observes one work queue."""

    def __init__(self, metrics: "Metrics", kind: str) -> None:
        self._adds = metrics.queue_adds.labels(kind)
        self._retries = metrics.queue_retries.labels(kind)
        self._seconds = metrics.queue_seconds.labels(kind)

    def added(self) -> None:
        """Count a key that became ready."""
        self._adds.inc()

    def retried(self) -> None:
        """Count a key put back after an error."""
        self._retries.inc()

    def waited(self, seconds: float) -> None:
        """Observe how long a key was ready before a worker took it."""
        self._seconds.observe(seconds)


class Metrics:
    """Every metric of the operator; series of a job go away with the job."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)  # memory, CPU, open files
        self._process_metrics()
        self._queue_metrics()
        self._job_metrics()
        self._jobs: dict[Key, tuple[str, str, str]] = {}  # key -> phase, strategy, ranks
        self._namespaces: set[str] = set()

    def _process_metrics(self) -> None:
        r = self.registry
        p = "heterotp_operator_"
        self.reconciles = Counter(p + "reconcile", "Reconciles by result", ("kind", "result"), registry=r)
        self.reconcile_seconds = Histogram(
            p + "reconcile_duration_seconds", "Reconcile duration", ("kind",), registry=r, buckets=RECONCILE_BUCKETS
        )
        self.inflight = Gauge(p + "reconciles_inflight", "Reconciles running now", ("kind",), registry=r)
        self.watch_events = Counter(p + "watch_events", "Watch events received", ("resource", "type"), registry=r)
        self.watch_reconnects = Counter(p + "watch_reconnects", "Watches opened again", ("resource",), registry=r)
        self.polls = Counter(p + "polls", "Polls of a job's rank 0", ("result",), registry=r)
        self.task_restarts = Counter(
            p + "task_restarts", "Own tasks that ended by an error and were started again", ("task",), registry=r
        )
        self.api_requests = Counter(
            p + "api_requests", "Calls to the API server (code 0: no answer)", ("verb", "resource", "code"), registry=r
        )
        self.api_seconds = Histogram(
            p + "api_request_duration_seconds", "API call duration", ("verb",), registry=r, buckets=RECONCILE_BUCKETS
        )
        self.leader = Gauge(p + "leader", "1 while this process holds the Lease", registry=r)
        Info(p + "build", "Version of the operator", registry=r).info({"version": build_version()})

    def _queue_metrics(self) -> None:
        r = self.registry
        p = "heterotp_operator_workqueue_"
        self.queue_depth = Gauge(p + "depth", "Keys that wait for a worker", ("kind",), registry=r)
        self.queue_adds = Counter(p + "adds", "Keys that became ready", ("kind",), registry=r)
        self.queue_retries = Counter(p + "retries", "Keys put back after an error", ("kind",), registry=r)
        self.queue_seconds = Histogram(
            p + "queue_duration_seconds", "Wait for a worker", ("kind",), registry=r, buckets=RECONCILE_BUCKETS
        )

    def _job_metrics(self) -> None:
        r = self.registry
        p = "heterotp_operator_"
        job = ("namespace", "heterotpjob")
        self.jobs = Gauge(p + "jobs", "Jobs by phase", ("namespace", "phase"), registry=r)
        self.job_phase = Gauge(p + "job_status_phase", "1 for the job's phase, else 0", (*job, "phase"), registry=r)
        self.job_info = Gauge(p + "job_info", "Facts of the job", (*job, "strategy", "ranks"), registry=r)
        self.stragglers = Gauge(p + "stragglers", "Ranks flagged now", job, registry=r)
        self.generation = Gauge(
            p + "policy_generation", "Generation of the control document published", job, registry=r
        )
        self.published = Counter(
            p + "policy_published", "Control documents written", ("namespace", "strategy"), registry=r
        )
        self.finished = Counter(p + "jobs_finished", "Jobs that ended", ("namespace", "result"), registry=r)
        self.restarts = Counter(p + "rank_restarts", "Gang restarts", ("namespace", "reason"), registry=r)
        self.startup_seconds = Histogram(
            p + "job_startup_seconds",
            "Created to the whole gang running",
            ("namespace",),
            registry=r,
            buckets=STARTUP_BUCKETS,
        )
        self.duration_seconds = Histogram(
            p + "job_duration_seconds", "Start to end", ("namespace", "result"), registry=r, buckets=STARTUP_BUCKETS
        )

    def observe_job(self, key: Key, spec: dict[str, Any], status: dict[str, Any]) -> None:
        """Show the job's phase, facts and flagged ranks."""
        phase = status.get("phase") or "Pending"
        strategy = (status.get("balancing") or {}).get("strategy") or "None"
        facts = phase, strategy, str(spec.get("tensorParallelDegree", ""))
        flagged = sum(1 for rank in status.get("ranks") or () if rank.get("straggler"))
        self.stragglers.labels(*key).set(flagged)
        self.generation.labels(*key).set((status.get("balancing") or {}).get("generation") or 0)
        old = self._jobs.get(key)
        if old == facts:
            return
        self._jobs[key] = facts
        self._begin(key[0])
        if old is not None and old[1:] != facts[1:]:
            self.job_info.remove(*key, *old[1:])
        self.job_info.labels(*key, *facts[1:]).set(1)
        for each in PHASES:
            self.job_phase.labels(*key, each).set(float(each == phase))

    def _begin(self, namespace: str) -> None:
        """Start what a namespace's jobs will count at 0: an increase from nothing to 1 is none to Prometheus."""
        if namespace in self._namespaces:
            return
        self._namespaces.add(namespace)
        for metric, values in (
            (self.published, get_args(Strategy)),
            (self.finished, USUAL_RESULTS),
            (self.restarts, USUAL_CAUSES),
        ):
            for value in values:
                metric.labels(namespace, value)
        self.startup_seconds.labels(namespace)

    def observe_transition(self, job: Json, status: Json, now: float) -> None:
        """Count what is new in a status: an end, a restart, a gang that runs."""
        namespace, old = job["metadata"]["namespace"], job.get("status") or {}
        phase = status.get("phase")
        if phase == RESTARTING and (status.get("attempt") or 0) > (old.get("attempt") or 0):
            reason = _reason(status, RESTARTING)  # drained nodes, too, which `restarts` does not count
            self.restarts.labels(namespace, reason).inc()
        if phase == old.get("phase"):
            return
        if phase in ENDED_PHASES:
            result = SUCCEEDED if phase == SUCCEEDED else _reason(status, FAILED)
            self.finished.labels(namespace, result).inc()
            started = _seconds(status.get("startTime") or old.get("startTime"))
            if started is not None:
                self.duration_seconds.labels(namespace, phase).observe(max(0.0, now - started))
        created = _seconds(job["metadata"].get("creationTimestamp"))
        if phase == RUNNING and old.get("attempt") == 1 and created is not None:
            self.startup_seconds.labels(namespace).observe(max(0.0, now - created))

    def forget_job(self, key: Key) -> None:
        """Remove the series of a job that is gone."""
        facts = self._jobs.pop(key, None)
        if facts is None:
            return
        self.job_info.remove(*key, *facts[1:])
        self.stragglers.remove(*key)
        self.generation.remove(*key)
        for phase in PHASES:
            self.job_phase.remove(*key, phase)

    def collect_totals(self, depths: Iterable[tuple[str, int]]) -> None:
        """Set the gauges that are counted at scrape time: jobs by phase, queue depths."""
        self.jobs.clear()
        totals = Count((key[0], facts[0]) for key, facts in self._jobs.items())
        for namespace in {key[0] for key in self._jobs}:
            for phase in PHASES:
                self.jobs.labels(namespace, phase).set(totals[namespace, phase])
        for kind, depth in depths:
            self.queue_depth.labels(kind).set(depth)
