"""The operator's metrics: what a job shows, what counts once, what goes with it, and when the process is unhealthy."""

import pytest
from heterotp_operator.metrics import QueueMetrics
from heterotp_operator.queue import WorkQueue
from heterotp_operator.server import unhealthy
from prometheus_client import generate_latest

KEY = ("ns", "j")
SPEC = {"tensorParallelDegree": 8}
P = "heterotp_operator_"


def value(metrics, name, **labels):
    return metrics.registry.get_sample_value(P + name, labels)


def job(**status):
    return {"metadata": {"namespace": "ns", "name": "j", "creationTimestamp": "2026-01-01T00:00:00Z"}, "status": status}


NEW_YEAR = 1767225600.0


def test_process_metrics_are_exported_and_unused_ones_are_not(metrics):
    metrics.observe_job(KEY, SPEC, {"phase": "Starting"})
    text = generate_latest(metrics.registry).decode()
    assert "process_resident_memory_bytes" in text and "process_cpu_seconds_total" in text
    assert "_created" not in text


def test_a_job_shows_exactly_one_phase(metrics):
    metrics.observe_job(KEY, SPEC, {"phase": "Starting"})
    metrics.observe_job(KEY, SPEC, {"phase": "Running", "ranks": [{"straggler": True}, {"straggler": False}]})
    shown = {
        p: value(metrics, "job_status_phase", namespace="ns", heterotpjob="j", phase=p) for p in ("Starting", "Running")
    }
    assert shown == {"Starting": 0, "Running": 1}
    assert value(metrics, "stragglers", namespace="ns", heterotpjob="j") == 1


def test_counters_of_a_namespace_start_at_0(metrics):
    counters = {
        "policy_published_total": {"strategy": "RESHARD"},
        "jobs_finished_total": {"result": "Succeeded"},
        "job_startup_seconds_count": {},
        "rank_restarts_total": {"reason": "Error"},
    }
    assert all(value(metrics, name, namespace="ns", **labels) is None for name, labels in counters.items())
    metrics.observe_job(KEY, SPEC, {"phase": "Pending"})
    assert all(value(metrics, name, namespace="ns", **labels) == 0 for name, labels in counters.items())
    metrics.published.labels("ns", "RESHARD").inc()
    metrics.observe_job(("ns", "another"), SPEC, {"phase": "Pending"})
    assert value(metrics, "policy_published_total", namespace="ns", strategy="RESHARD") == 1


def test_changed_facts_leave_no_old_series(metrics):
    metrics.observe_job(KEY, SPEC, {"phase": "Running"})
    metrics.observe_job(KEY, SPEC, {"phase": "Running", "balancing": {"strategy": "AUTO"}})
    labels = {"namespace": "ns", "heterotpjob": "j", "ranks": "8"}
    assert value(metrics, "job_info", strategy="None", **labels) is None
    assert value(metrics, "job_info", strategy="AUTO", **labels) == 1


def test_totals_by_phase(metrics):
    for number, phase in enumerate(("Running", "Running", "Failed")):
        metrics.observe_job(("ns", str(number)), SPEC, {"phase": phase})
    metrics.collect_totals([("HeteroTPJob", 4)])
    assert value(metrics, "jobs", namespace="ns", phase="Running") == 2
    assert value(metrics, "jobs", namespace="ns", phase="Pending") == 0
    assert value(metrics, "workqueue_depth", kind="HeteroTPJob") == 4
    metrics.forget_job(("ns", "2"))
    metrics.collect_totals([])
    assert value(metrics, "jobs", namespace="ns", phase="Failed") == 0


def test_a_job_that_is_gone_leaves_no_series(metrics):
    metrics.observe_job(KEY, SPEC, {"phase": "Running"})
    metrics.forget_job(KEY)
    metrics.forget_job(KEY)
    left = [s for family in metrics.registry.collect() for s in family.samples if s.labels.get("heterotpjob")]
    assert left == []


def test_ends_restarts_and_starts_count_once(metrics):
    running = {"phase": "Running", "startTime": "2026-01-01T00:00:10Z", "attempt": 1, "restarts": 0}
    metrics.observe_transition(job(phase="Starting", attempt=1), running, NEW_YEAR + 30)
    metrics.observe_transition(job(**running), running, NEW_YEAR + 40)
    assert value(metrics, "job_startup_seconds_sum", namespace="ns") == 30
    restarting = {**running, "phase": "Restarting", "attempt": 2, "restarts": 1}
    restarting["conditions"] = [{"type": "Restarting", "reason": "RankFailed"}]
    metrics.observe_transition(job(**running), restarting, NEW_YEAR + 50)
    assert value(metrics, "rank_restarts_total", namespace="ns", reason="RankFailed") == 1
    metrics.observe_transition(job(**restarting), restarting, NEW_YEAR + 51)
    drained = {**restarting, "attempt": 3, "conditions": [{"type": "Restarting", "reason": "EvictionByEvictionAPI"}]}
    metrics.observe_transition(job(**restarting), drained, NEW_YEAR + 60)
    suspended = {**drained, "phase": "Suspended", "attempt": 4}
    metrics.observe_transition(job(**drained), suspended, NEW_YEAR + 70)
    counts = {s.labels["reason"]: s.value for s in metrics.restarts.collect()[0].samples}
    assert counts == {"RankFailed": 1, "EvictionByEvictionAPI": 1}
    done = {**restarting, "phase": "Succeeded"}
    metrics.observe_transition(job(**restarting), done, NEW_YEAR + 110)
    metrics.observe_transition(job(**done), done, NEW_YEAR + 120)
    assert value(metrics, "jobs_finished_total", namespace="ns", result="Succeeded") == 1
    assert value(metrics, "job_duration_seconds_sum", namespace="ns", result="Succeeded") == 100
    resumed = {**running, "attempt": 3}
    metrics.observe_transition(job(phase="Starting", attempt=3), resumed, NEW_YEAR + 130)
    assert value(metrics, "job_startup_seconds_count", namespace="ns") == 1


def test_a_queue_reports_itself(metrics):
    now = [0.0]
    queue = WorkQueue(lambda: now[0], QueueMetrics(metrics, "HeteroTPJob"))
    queue.add(KEY)
    queue.add(KEY)
    now[0] = 2.0
    queue.take()
    queue.retry(KEY)
    assert value(metrics, "workqueue_adds_total", kind="HeteroTPJob") == 1
    assert value(metrics, "workqueue_retries_total", kind="HeteroTPJob") == 1
    assert value(metrics, "workqueue_queue_duration_seconds_sum", kind="HeteroTPJob") == 2


@pytest.mark.parametrize(
    ("watches", "oldest", "problem"),
    [
        ({}, 0, ""),
        ({"pods": 700}, 299, ""),
        ({"pods": 590, "services": 990}, 0, "the watch of pods is dead: opened last 410 s ago"),
        ({}, 301, "a worker is stuck for 301 s"),
    ],
)
def test_health(watches, oldest, problem):
    assert unhealthy(watches, oldest, 1000) == problem
