"""Half an hour of metrics in OpenMetrics, written by the real registries of ranks and operator.

`PYTHONPATH=tests python tests/support/board_history.py OUT.om [JOBS] [RANKS]` writes a fleet of that size (10 minutes)
for measurements.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from heterotp_api.policy import BalancingSettings
from heterotp_operator.metrics import Metrics, QueueMetrics
from heterotp_trainer.balancing.effect import Effect
from heterotp_trainer.plans.work_plan import WorkPlan
from heterotp_trainer.reporting.metrics import JobMetrics, RankMetrics
from prometheus_client import CollectorRegistry

STEP = 30  # seconds between scrapes
MATMUL, UNIT, FIXED, DATA, COMMUNICATION = 0.30, 0.06, 0.03, 0.01, 0.05  # seconds of a whole rank's iteration
CAUSES = {"cpuLimit": 0.6, "neighbours": 0.2}  # of a slow rank: share of time


@dataclass(frozen=True)
class Story:
    """One job: which rank becomes slow, and when a policy reduces its work (minutes; None: never)."""

    namespace: str
    job: str
    ranks: int = 8
    slow_rank: int = 5
    chi: float = 4.0
    slow_from: float = 8.0
    balanced_from: float | None = 16.0
    restarted_at: float | None = 3.0
    injected: bool = True
    pace: float = 1.0  # factor on all times

    def is_slow(self, minute: float, rank: int) -> bool:
        """Return whether the rank is slow now."""
        return rank == self.slow_rank and minute >= self.slow_from

    def balanced(self, minute: float) -> bool:
        """Return whether the policy is in force now."""
        return self.balanced_from is not None and minute >= self.balanced_from


REDUCTION = Effect(pruned=0.2, migrated=0.55, columns_out=770, bytes_out=6e6)


class Gang:
    """The processes of one attempt of a job."""

    def __init__(self, story: Story, attempt: int) -> None:
        self._story, self._attempt = story, attempt
        self._ranks = [RankMetrics(rank, "full") for rank in range(story.ranks)]
        self._job = JobMetrics(self._ranks[0].registry, story.ranks, attempt, "gloo")
        self._job.strategy.state("None")
        self._job.limit.set(0.42)
        self._decision_id, self._iterations = 0, 0

    def advance(self, minute: float, now: float) -> None:
        """Simulate one scrape interval that ends at `now`."""
        story, balanced = self._story, self._story.balanced(minute)
        if balanced and not self._decision_id:
            self._decide()
        for rank, metrics in enumerate(self._ranks):
            metrics.injected(story.chi if story.injected and story.is_slow(minute, rank) else 1.0)
            metrics.slowdown(story.chi if story.is_slow(minute, rank) else 1.0)
            metrics.causes(CAUSES if story.is_slow(minute, rank) else {})
            metrics.generation.set(1 + balanced)
        busy = [self._seconds(minute, rank) for rank in range(story.ranks)]
        whole = max(sum(each.values()) for each in busy) + COMMUNICATION * story.pace
        for _ in range(int(STEP / whole)):
            self._iterate(busy, whole, now, minute)
        self._job.samples.inc(64 * int(STEP / whole))
        self._job.epoch.set(self._iterations // 300)
        self._job.loss.labels("train").set(2.3 / (1 + self._iterations / 200))
        self._job.loss.labels("eval").set(2.4 / (1 + self._iterations / 200))
        self._job.accuracy.labels("eval").set(1 - 0.9 / (1 + self._iterations / 300))
        self._job.checkpoint.set(0.4)

    def _decide(self) -> None:
        story = self._story
        self._decision_id = 1
        self._job.decided(WorkPlan(1, BalancingSettings(strategy="SEMI"), predicted_seconds=0.47))
        self._job.moved(1.2)
        others = story.ranks - 1
        taken = Effect(
            received=REDUCTION.migrated / others, columns_in=REDUCTION.columns_out // others, bytes_in=6e6 / others
        )
        for rank, metrics in enumerate(self._ranks):
            metrics.balance(REDUCTION if rank == story.slow_rank else taken)

    def _work(self, minute: float, rank: int) -> float:
        """Return the work of a rank; 1 is its initial share."""
        if not self._story.balanced(minute):
            return 1.0
        if rank == self._story.slow_rank:
            return 1 - REDUCTION.pruned - REDUCTION.migrated
        return 1 + REDUCTION.migrated / (self._story.ranks - 1)

    def _seconds(self, minute: float, rank: int) -> dict[str, float]:
        slower = self._story.chi if self._story.is_slow(minute, rank) else 1.0
        noise = 1 + 0.02 * ((7 * rank + int(minute * 2)) % 5) / 5
        migrate = 0.01 if self._story.balanced(minute) else 0.0
        matmul = MATMUL * self._work(minute, rank) * slower * noise
        seconds = dict(data=DATA, matmul=matmul, unit=UNIT, fixed=FIXED, migrate=migrate, control=0.001)
        return {name: self._story.pace * spent for name, spent in seconds.items()}

    def _iterate(self, busy: list[dict[str, float]], whole: float, now: float, minute: float) -> None:
        self._iterations += 1
        self._job.step.observe(whole)
        for rank, metrics in enumerate(self._ranks):
            seconds = {**busy[rank], "wait": whole - sum(busy[rank].values())}
            metrics.iteration(seconds, self._work(minute, rank), now)
            metrics.blamed(_lost(busy, rank))

    def samples(self) -> Iterator[str]:
        """Yield the samples of a scrape of all ranks: two ranks per node, one rank per pod."""
        story = self._story
        for rank, metrics in enumerate(self._ranks):
            pod = f"{story.job}-workers-{rank}-{self._attempt}"
            target = dict(namespace=story.namespace, heterotpjob=story.job, node=f"node-{rank // 2}", pod=pod)
            target |= dict(job=f"{story.namespace}/heterotp-ranks", instance=f"{pod}:9400", container="trainer")
            yield from samples_of(metrics.registry, target)

    def machine_samples(self, seconds: float) -> Iterator[str]:
        """Yield the samples of cadvisor and dcgm-exporter about the pods."""
        for rank in range(self._story.ranks):
            pod = f"{self._story.job}-workers-{rank}-{self._attempt}"
            of_pod = dict(namespace=self._story.namespace, pod=pod)
            counted = dict(cfs_periods=10, cfs_throttled_periods=rank % 3)
            for name, value in counted.items():
                yield line(f"container_cpu_{name}_total", {**of_pod, "container": "trainer"}, value * seconds)
            yield line("container_memory_working_set_bytes", {**of_pod, "container": "trainer"}, 4e8 + 1e7 * rank)
            for way in ("receive", "transmit"):
                yield line(f"container_network_{way}_bytes_total", of_pod, 3e7 * seconds)
            gauges = dict(GPU_UTIL=95, SM_CLOCK=1980 - 400 * (rank == 5), POWER_USAGE=400, GPU_TEMP=60 + rank)
            for name, value in gauges.items():
                yield line(f"DCGM_FI_DEV_{name}", {**of_pod, "gpu": str(rank % 2)}, value)


def _lost(busy: list[dict[str, float]], rank: int) -> dict[str, float]:
    """Return what the others lose to a rank in an iteration, by stage: half of it in each direction of the FFN."""
    first, second = sorted((sum(each.values()) for each in busy), reverse=True)[:2]
    lost = first - second if sum(busy[rank].values()) == first else 0.0
    return {"ffnForward": lost / 2, "ffnBackward": lost / 2}


def line(name: str, labels: dict[str, str], value: float) -> str:
    """Return one sample without its time."""
    inside = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {value!r}"


def samples_of(registry: CollectorRegistry, target: dict[str, str]) -> Iterator[str]:
    """Yield the samples of a registry with the labels of its target; labels of the registry take precedence."""
    for family in registry.collect():
        for sample in family.samples:
            yield line(sample.name, {**target, **sample.labels}, float(sample.value))


class OperatorHistory:
    """The registry of the operator while jobs start, restart and end."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.metrics.leader.set(1)
        self._queue = QueueMetrics(self.metrics, "HeteroTPJob")
        self._status: dict[tuple[str, str], dict[str, Any]] = {}

    def see(self, story: Story, phase: str, minute: float, now: float) -> None:
        """Record the status of a job."""
        key = (story.namespace, story.job)
        restarts = int(story.restarted_at is not None and minute >= story.restarted_at)
        flagged = phase == "Running" and minute >= story.slow_from and not story.balanced(minute)
        status = {
            "phase": phase,
            "attempt": 1 + restarts,
            "restarts": restarts,
            "balancing": {"strategy": "SEMI" if story.balanced(minute) else "None", "generation": 1},
            "ranks": [{"straggler": flagged}],
            "conditions": [{"type": "Restarting", "reason": "Error"}],
        }
        created = {"namespace": story.namespace, "name": story.job, "creationTimestamp": "2026-01-01T00:00:00Z"}
        old = self._status.get(key, {"attempt": 1})
        self.metrics.observe_transition({"metadata": created, "status": old}, status, 1767225600.0 + 45)
        self.metrics.observe_job(key, {"tensorParallelDegree": story.ranks}, status)
        self._status[key] = status

    def work(self, minute: float) -> None:
        """Count the operations of the operator in one scrape interval."""
        m = self.metrics
        for kind in ("HeteroTPJob", "BalancingPolicy", "StragglerInjection"):
            m.inflight.labels(kind).set(0)
            m.reconciles.labels(kind, "success").inc(12)
            for _ in range(12):
                m.reconcile_seconds.labels(kind).observe(0.004)
        m.reconciles.labels("HeteroTPJob", "error").inc(0)
        self._queue.added()
        self._queue.retried()
        self._queue.waited(0.002)
        m.published.labels("team-a", "SEMI").inc(int(minute == 16))
        m.watch_reconnects.labels("heterotpjobs").inc(int(minute % 5 == 0))
        for verb, resource in (("patch", "heterotpjobs"), ("create", "pods")):
            m.api_requests.labels(verb, resource, "200").inc(3)
            m.api_seconds.labels(verb).observe(0.02)

    def samples(self, seconds: float) -> Iterator[str]:
        """Yield the samples of a scrape; labels of the operator take precedence (honorLabels)."""
        self.metrics.collect_totals([("HeteroTPJob", 0)])
        pod = "heterotp-operator-0"
        target = dict(namespace="heterotp-system", pod=pod, job="heterotp-operator", instance="operator:8080")
        yield from samples_of(self.metrics.registry, target)
        yield line("up", target, 1)


def write(out: TextIO, stories: list[Story], start: int, minutes: int) -> None:
    """Write the history in OpenMetrics, from `start` (unix seconds) on."""
    operator, gangs = OperatorHistory(), {story.job: Gang(story, 1) for story in stories}
    for step in range(minutes * 60 // STEP + 1):
        minute, now = step * STEP / 60, start + step * STEP
        operator.work(minute)
        lines: list[str] = []
        for story in stories:
            restarting = story.restarted_at is not None and 0 <= minute - story.restarted_at < 1
            if restarting:
                gangs[story.job] = Gang(story, 2)
            operator.see(story, "Pending" if not step else "Restarting" if restarting else "Running", minute, now)
            if step and not restarting:
                gang = gangs[story.job]
                gang.advance(minute, now)
                lines += [*gang.samples(), *gang.machine_samples(step * STEP)]
        if step in (20, 40):
            phase = "Running" if step == 20 else "Succeeded"
            operator.see(Story("team-b", "done", slow_from=99), phase, minute, now)
        lines += operator.samples(step * STEP)
        out.writelines(f"{text} {now}\n" for text in lines)
    out.write("# EOF\n")


def main(out: str, jobs: str = "1000", ranks: str = "8") -> int:
    """Write a fleet that ends now; return that time, unix seconds."""
    stories = [
        Story(f"team-{number % 20}", f"job-{number}", int(ranks), slow_rank=1, slow_from=2, balanced_from=None, pace=10)
        for number in range(int(jobs))
    ]
    end = int(time.time()) // STEP * STEP
    with Path(out).open("w", encoding="utf-8") as file:
        write(file, stories, end - 600, 10)
    return end


if __name__ == "__main__":
    main(*sys.argv[1:])
