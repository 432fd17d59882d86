"""What one look at a large template costs: each template is copied once, and no two pods' bodies exist at once."""

import json
import tracemalloc

import pytest
from heterotp_operator.reconcile import observed as observed_module
from heterotp_operator.reconcile.actions import MOST_PODS, CreatePod, DryRunPod
from heterotp_operator.reconcile.plan import plan
from support.reconcile_world import World, manifest

VALUES = 4_800  # almost as many as a template may hold
MIB = 1 << 20


def large():
    """One group of 256 pods whose container holds 4,800 small values."""
    container = {"name": "trainer", "ports": [{"x": 1} for _ in range(VALUES // 2)]}
    return manifest(groups=[("a", MOST_PODS, 1)], template={"spec": {"containers": [container]}})


@pytest.fixture
def copies(monkeypatch):
    """The templates that were copied."""
    found = []
    whole = observed_module.without_nulls
    monkeypatch.setattr(observed_module, "without_nulls", lambda value: found.append(1) or whole(value))
    return found


def test_the_pods_of_a_large_template_take_bounded_memory_and_copies(copies):
    seen = World(large()).observe()
    tracemalloc.start()
    try:
        creations = [action for action in plan(seen).actions if isinstance(action, CreatePod)]
        for creation in creations[:32]:
            assert len(creation.body["spec"]["containers"][0]["ports"]) > VALUES // 2
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(creations), len(copies)) == (MOST_PODS, 1)
    assert peak < 8 * MIB


def test_bodies_of_pods_share_nothing_that_one_of_them_changes():
    """Each body is built from the same template: what completes one must not be in the next."""
    gang = {"gang": {"provider": "kueue", "queue": "q", "admission": "PodGroup"}}
    template = {
        "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {
            "schedulingGates": [{"name": "mine"}],
            "volumes": [{"name": "v", "emptyDir": {}}],
            "initContainers": [{"name": "first"}],
            "containers": [
                {"name": "trainer", "env": [{"name": "E", "value": "1"}], "volumeMounts": [], "ports": []},
                {"name": "beside", "securityContext": {"runAsUser": 7}},
            ],
        },
    }
    world = World(manifest(groups=[("a", 2, 1)], template=template, runPolicy=gang))
    decision = world.plan()
    first = [json.dumps(each.body) for each in decision.actions if isinstance(each, CreatePod | DryRunPod)]
    again = [json.dumps(each.body) for each in decision.actions if isinstance(each, CreatePod | DryRunPod)]
    assert first == again
    assert [text.count("kueue.x-k8s.io/admission") for text in first] == [1, 1, 1]
