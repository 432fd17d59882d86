"""The known metrics with their labels and values, read from real expositions of the trainer and the operator.

Metrics of other programs and labels added by a scrape are listed here.
"""

import asyncio
import time
from collections import defaultdict
from dataclasses import dataclass, field

from heterotp_dashboards.queries import JOB, RANK
from heterotp_dashboards.rules import Record, recording
from heterotp_operator.cluster import Conflict
from heterotp_operator.metrics import Metrics, QueueMetrics
from heterotp_operator.queue import WorkQueue
from heterotp_operator.queue_worker import QueueWorker
from heterotp_trainer.devices.phase_clock import PHASES as RANK_PHASES
from heterotp_trainer.reporting.metrics import JobMetrics, RankMetrics
from prometheus_client import CollectorRegistry

TARGET = {"cluster", "namespace", "pod", "node", "container", "job", "instance"}
RANK_TARGET = TARGET | {"heterotpjob"}  # the PodMonitor's relabelings
CADVISOR = (
    "container_cpu_cfs_periods_total",
    "container_cpu_cfs_throttled_periods_total",
    "container_memory_working_set_bytes",
    "container_network_receive_bytes_total",
    "container_network_transmit_bytes_total",
)
DCGM = ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP")


@dataclass
class Metric:
    """The labels of a metric, and the values of labels that the process sets."""

    labels: set[str]
    values: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


def known_metrics() -> dict[str, Metric]:
    """Return every metric that a board, a rule or an alert may query."""
    known = {
        **_shown(_trainer(), RANK_TARGET),
        **_shown(asyncio.run(_operator()), TARGET),
        "up": Metric(TARGET),
        "ALERTS": Metric({"alertname", "alertstate", "severity", *JOB.split(", "), "rank", "node"}),
    }
    known |= {name: Metric(TARGET) for name in CADVISOR}
    known |= {name: Metric(TARGET | {"gpu"}) for name in DCGM}
    for group in recording():
        known |= {rule.name: Metric(_level(rule.name)) for rule in group.rules if isinstance(rule, Record)}
    return known


def _level(name: str) -> set[str]:
    """Return the labels given by the level in the name of a recording rule."""
    level = name.partition(":")[0]
    labels = {
        "namespace_heterotpjob_rank": RANK,
        "namespace_heterotpjob_phase": f"{JOB}, phase",
        "namespace_heterotpjob": JOB,
        "namespace": "cluster, namespace",
    }
    return set(labels[level].split(", "))


def _shown(registry: CollectorRegistry, scrape: set[str]) -> dict[str, Metric]:
    known: dict[str, Metric] = {}
    for family in registry.collect():
        for sample in family.samples:
            metric = known.setdefault(sample.name, Metric(set(scrape)))
            metric.labels |= set(sample.labels)
            for label, value in sample.labels.items():
                metric.values[label].add(value)
    return known


def _trainer() -> CollectorRegistry:
    """Return the registry of rank 0 after every event of a rank."""
    rank = RankMetrics(0, "full")
    rank.causes({"cpuLimit": 0.6})
    job = JobMetrics(rank.registry, ranks=4, attempt=1, backend="gloo")
    rank.injected(2.0)
    rank.slowdown(2.0)
    rank.blamed({"ffnForward": 0.1})
    rank.iteration(dict.fromkeys(RANK_PHASES, 0.1), work=1.0, now=1.0)
    for split in ("train", "eval"):
        job.loss.labels(split).set(1.0)
    job.accuracy.labels("eval").set(0.5)
    return rank.registry


async def _operator() -> CollectorRegistry:
    """Return the registry of the operator after every event of an operator."""
    metrics, key = Metrics(), ("team-a", "vit")
    queue_metrics = QueueMetrics(metrics, "HeteroTPJob")
    for outcome in (None, 1.0, Conflict(409, "Conflict", "old"), ValueError("wrong")):
        await _turn(metrics, queue_metrics, outcome)
    created = {"namespace": "team-a", "name": "vit", "creationTimestamp": "2026-01-01T00:00:00Z"}
    begun = {"attempt": 1, "startTime": "2026-01-01T00:00:10Z"}
    story = ("Pending", "Running", "Restarting", "Running", "Succeeded")
    status: dict[str, object] = dict(begun)
    for number, phase in enumerate(story):
        new = {**begun, "phase": phase, "restarts": int(number > 1)}
        metrics.observe_transition({"metadata": created, "status": status}, new, 1767225700.0)
        metrics.observe_job(key, {"tensorParallelDegree": 4}, new)
        status = new
    metrics.collect_totals([("HeteroTPJob", 0)])
    metrics.published.labels("team-a", "ZERO").inc()
    metrics.watch_events.labels("heterotpjobs", "MODIFIED").inc()
    metrics.watch_reconnects.labels("heterotpjobs").inc()
    metrics.api_requests.labels("patch", "pods", "200").inc()
    metrics.api_seconds.labels("patch").observe(0.1)
    return metrics.registry


async def _turn(metrics: Metrics, queue_metrics: QueueMetrics, outcome: float | Exception | None) -> None:
    """Let a worker reconcile one object with this outcome."""

    async def reconcile(_: object) -> float | None:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    queue = WorkQueue(time.monotonic, queue_metrics)
    queue.add(("team-a", "vit"))
    key = queue.take()
    assert key is not None
    await QueueWorker("HeteroTPJob", queue, metrics, reconcile)._work_on(key)
