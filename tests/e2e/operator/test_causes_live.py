"""Ranks that are slow for real reasons: the job's status, its condition and its events say which."""

import pytest
from support.kube import until
from support.slow_pods import disk_speed, forgotten, named, neighbour, reading_job

pytestmark = pytest.mark.e2e
LIMIT = 0.3  # CPUs
SLOW_DISK = 4_000_000  # bytes a second: a batch takes a quarter of a second, more than all the rest
WARM = 30  # iterations


def told(run, words):
    """Wait until the condition, and an event of the job, say these words of rank 1."""
    until(
        lambda: run.status.get("conditions"),
        lambda: words in run.condition("Straggling").get("message", ""),
        every=0.2,
    )
    events = run.kube.list("events", run.space.name)
    own = [each["message"] for each in events if each.get("reason") == "CauseFound"]
    assert any(text.startswith("rank 1 is slow: ") and words in text for text in own), own


def test_a_cpu_limit_is_named_with_its_amount(space, measured):
    run = reading_job(space, "limited", LIMIT)
    run.trained(attempt=1, iteration=WARM)
    cause, seconds = named(run, "cpuLimit")
    assert cause["amount"] == LIMIT
    told(run, f"its container was throttled by its CPU limit of {LIMIT} CPUs")
    assert all(each["rank"] == 1 for each in run.status["causes"])
    measured[f"a CPU limit is named after {WARM} iterations and"] = seconds


def test_a_neighbour_on_its_cpu_is_named_and_forgotten_when_it_has_gone(space, measured):
    run = reading_job(space, "beside")
    run.trained(attempt=1, iteration=WARM)
    neighbour(space, "busy")
    cause, seconds = named(run, "cpuContention")
    told(run, "it was ready to compute and had no CPU")
    assert cause["share"] > 0.15
    measured["a neighbour on the CPU is named after"] = seconds
    run.kube.delete("pods", space.name, "busy")
    forgotten(run, "cpuContention")


def test_a_slow_disk_under_the_data_is_named_and_forgotten_when_it_is_fast_again(space, measured):
    run = reading_job(space, "reading")
    run.trained(attempt=1, iteration=WARM)
    pod = run.pods()[1]
    disk_speed(pod, SLOW_DISK)
    _, seconds = named(run, "data")
    told(run, "it loaded data for longer than the others")
    measured["a slow disk under the data is named after"] = seconds
    disk_speed(pod, 0)
    forgotten(run, "data")
