"""The write rule: facts at once, numbers when they moved by 5 % or after 30 s."""

import pytest
from heterotp_operator.status_write import due

BASE = {
    "phase": "Running",
    "observedGeneration": 1,
    "conditions": [{"type": "Running", "status": "True"}],
    "training": {"iteration": 1000, "loss": 2.0},
    "ranks": [{"rank": 0, "computeSeconds": 0.1}],
}


def changed(**fields):
    return {**BASE, **fields}


@pytest.mark.parametrize(
    ("wanted", "age", "expected"),
    [
        (BASE, 1e9, False),
        (changed(phase="Failed"), 0, True),
        (changed(observedGeneration=2), 0, True),
        (changed(conditions=[]), 0, True),
        (changed(waitingFor="Rendezvous"), 0, True),
        (changed(training={"iteration": 1010, "loss": 2.0}), 29, False),
        (changed(training={"iteration": 1010, "loss": 2.0}), 30, True),
        (changed(training={"iteration": 1000, "loss": 1.8}), 0, True),
        (changed(ranks=[{"rank": 0, "computeSeconds": 0.104}]), 0, False),
        (changed(ranks=[{"rank": 0, "computeSeconds": 0.11}]), 0, True),
        (changed(ranks=[{"rank": 0, "computeSeconds": 0.1, "straggler": True}]), 0, True),
        (changed(ranks=[]), 0, True),
        (changed(balancing={"strategy": "AUTO"}), 0, True),
    ],
)
def test_table(wanted, age, expected):
    assert due(BASE, wanted, age) is expected


def test_counters_of_the_other_manager_are_no_reason():
    assert not due({**BASE, "attempt": 2, "restarts": 1}, BASE, 0)


def test_absent_and_empty_are_the_same():
    assert not due(BASE, changed(workerGroups=[], completionTime=None), 0)


def test_a_prediction_is_a_number():
    old, new = (changed(balancing={"strategy": "AUTO", "limitIterationSeconds": x}) for x in (1.0, 1.01))
    assert not due(old, new, 0)


def test_defaults_that_the_server_fills_in_are_no_reason():
    group = {"name": "a", "desired": 2}
    live = {"name": "a", "desired": 2, "ready": 0, "failed": 0}
    assert not due(changed(workerGroups=[live]), changed(workerGroups=[group]), 0)
    assert due(changed(workerGroups=[live | {"ready": 1}]), changed(workerGroups=[group]), 0)
