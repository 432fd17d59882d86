"""Hashes that decide on a restart: those of real manifests are checked in, and no new field changes them."""

import copy

import pytest
from heterotp_api.job import HeteroTPJobSpec
from heterotp_api.training import DataSpec, Training
from heterotp_operator.reconcile.gang_hash import gang_hashes
from support.reconcile_world import World
from support.stored_manifests import example_specs, stored

IMAGE = "heterotp/trainer:test"
GROUP = {"name": "a", "pods": 2}
COMMAND = {"spec": {"containers": [{"name": "trainer", "image": "mine:1", "command": ["run"]}]}}
SYNTHETIC = {
    "the least": {"tensorParallelDegree": 1, "workerGroups": [{"name": "a"}], "training": {}},
    "own command": {"tensorParallelDegree": 2, "workerGroups": [{**GROUP, "template": COMMAND}]},
    "sizes, a path and ports": {
        "tensorParallelDegree": 2,
        "workerGroups": [{**GROUP, "relativeSpeed": 1, "device": {"type": "emulated", "teraflops": 1}}],
        "training": {
            "model": {"hiddenSize": 8, "heads": 2, "depth": 1},
            "data": {"path": "/d"},
            "weightDecay": 0.1,
            "epochs": 3,
        },
        "checkpoint": {},
        "rendezvous": {"port": 30000},
        "metrics": {"level": "basic"},
    },
    "a claim": {
        "tensorParallelDegree": 2,
        "workerGroups": [{"name": "a", "processesPerPod": 2}],
        "training": {"seed": 3, "recompute": True},
        "checkpoint": {"persistentVolumeClaim": "disk", "keep": 5},
    },
}
SPECS = {**example_specs(), **SYNTHETIC}
# of the first version, 0.1.0: gangs that it made carry them. They never change; a new manifest adds a line.
GOLDEN = {
    "balancing.yaml": "51d0f3a853.9b48258151",
    "demo.yaml": "59dd708ca8.d7be5e5637",
    "finetune/job.yaml": "1af9dad3e3.58260773ed",
    "heterogeneous.yaml": "8fc00cbe50.eb849e55cc",
    "kueue.yaml": "8fc00cbe50.81919aceeb",
    "language.yaml": "0749255c22.2f370d4212",
    "own-model/cluster.yaml": "be9ec33578.8b1559ac24",
    "own-model/job.yaml": "be9ec33578.41f1abf483",
    "straggler/job.yaml": "f0b39c1bb5.cc78cf4c90",
    "own-llama/cluster.yaml": "2c73d25545.108e00f070",
    "own-llama/job.yaml": "be9ec33578.76dea71efe",
    "volcano.yaml": "8fc00cbe50.81919aceeb",
    "the least": "5688e96f93.2243c94206",
    "own command": "da4f616f3b.c8d7b31c12",
    "sizes, a path and ports": "fc2a8d0ce0.aa20f2f267",
    "a claim": "b5a877e33d.164cf84c62",
}


def hashes(spec, model=HeteroTPJobSpec):
    return gang_hashes(model.model_validate(spec), IMAGE)


@pytest.mark.parametrize("name", GOLDEN)
def test_hashes_of_real_manifests_are_those_of_the_first_version(name):
    assert ".".join(hashes(stored(SPECS[name])["spec"])) == GOLDEN[name]
    assert ".".join(hashes(SPECS[name])) == GOLDEN[name], "whoever fills the defaults in"


def test_every_example_is_listed():
    assert set(SPECS) == set(GOLDEN)


class NewerData(DataSpec):
    workers: int = 4


class NewerTraining(Training):
    data: NewerData = NewerData()
    momentum: float = 0.5


class NewerSpec(HeteroTPJobSpec):
    training: NewerTraining | None = None
    priority: int = 3


@pytest.mark.parametrize("name", GOLDEN)
def test_a_field_that_a_newer_version_adds_changes_no_hash(name):
    spec = stored(SPECS[name])["spec"]
    assert ".".join(hashes(spec, NewerSpec)) == GOLDEN[name]
    spec["priority"] = 3  # filled in by the newer CRD
    if "training" in spec:
        spec["training"] |= {"momentum": 0.5}
        spec["training"]["data"] |= {"workers": 4}
    assert ".".join(hashes(spec, NewerSpec)) == GOLDEN[name]


def test_a_new_field_counts_once_a_user_sets_it():
    spec = stored(SYNTHETIC["the least"])["spec"]
    before = hashes(spec, NewerSpec)
    slower, more = copy.deepcopy(spec), copy.deepcopy(spec)
    slower["training"]["momentum"] = 0.6
    more["training"]["data"]["workers"] = 5
    assert [now == then for now, then in zip(hashes(slower, NewerSpec), before, strict=True)] == [True, False]
    assert [now == then for now, then in zip(hashes(more, NewerSpec), before, strict=True)] == [False, False]


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"runPolicy": {"backoffLimit": 9}}, (True, True)),
        ({"training": {"iterations": 7}}, (True, False)),
        ({"metrics": {"port": 9500}}, (False, False)),
        ({"checkpoint": {"path": "/c"}}, (False, False)),
    ],
    ids=["policy", "iterations", "port", "checkpoint"],
)
def test_what_a_hash_holds(change, same):
    spec = SYNTHETIC["the least"]
    assert tuple(now == then for now, then in zip(hashes(spec | change), hashes(spec), strict=True)) == same


def test_an_upgrade_keeps_the_attempt_of_a_running_gang(monkeypatch):
    world = World(stored(SPECS["demo.yaml"])).started()
    assert {pod["metadata"]["labels"]["heterotp.io/template-hash"] for pod in world.pods.values()} == {
        GOLDEN["demo.yaml"]
    }
    monkeypatch.setattr("heterotp_operator.reconcile.observed.HeteroTPJobSpec", NewerSpec)
    decision = world.settle()
    assert (world.status["attempt"], decision.actions, "SpecChangePending" in world.true) == (1, (), False)
