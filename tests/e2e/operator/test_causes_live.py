"""A rank that is slow for a real reason: the job's status, its condition and its events say which."""

import pytest
from support.kube import until
from support.slow_pods import forgotten, named, neighbour, reading_job

pytestmark = pytest.mark.e2e
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
