"""Pod templates: what the API server or the kernel would refuse later is refused by the manifest's own check."""

import pytest
from heterotp_api.base import MOST_ANNOTATIONS_BYTES
from heterotp_api.job import HeteroTPJobSpec
from heterotp_api.template import MOST_TEXT, checkpoint_error, template_error

TRAINER = {"name": "trainer"}


def spec(template, **more):
    group = {"name": "a", "template": template}
    return HeteroTPJobSpec.model_validate({"tensorParallelDegree": 1, "workerGroups": [group], "training": {}, **more})


def containers(*listed, **more):
    return {"spec": {"containers": list(listed), **more}}


def variable(**env):
    return containers({**TRAINER, "env": [env]})


REFUSED = {
    "two trainers": (containers(TRAINER, TRAINER), "spec.containers[1].name: 'trainer' must be there once"),
    "two sidecars": (containers({"name": "s"}, {"name": "s"}), "spec.containers[1].name: 's' must be there once"),
    "init container of a container's name": (
        containers({"name": "s"}, initContainers=[{"name": "s"}]),
        "spec.initContainers[0].name: 's' must be there once",
    ),
    "trainer as init container": (containers(initContainers=[TRAINER]), "spec.initContainers[0].name: 'trainer' must"),
    "name of a path": (containers({"name": "../x"}), "spec.containers[0].name: '../x' must be a DNS label"),
    "name too long": (containers({"name": "x" * 64}), "must be a DNS label: at most 63"),
    "no name": (containers({"image": "x"}), "spec.containers[0].name: must be a DNS label"),
    "number as a label": ({"metadata": {"labels": {"a": 1}}}, "metadata.labels: \"{'a': 1}\" must be a map of strings"),
    "annotations of a megabyte": (
        {"metadata": {"annotations": {"a": "x" * MOST_ANNOTATIONS_BYTES}}},
        f"metadata.annotations: must hold at most {MOST_ANNOTATIONS_BYTES} bytes together",
    ),
    "endless grace": (
        containers(terminationGracePeriodSeconds=10**18),
        "spec.terminationGracePeriodSeconds: '1000000000000000000' must be a whole number of 0 .. 31536000 seconds",
    ),
    "negative grace": (containers(terminationGracePeriodSeconds=-1), "must be a whole number of 0 .. 31536000"),
    "variable without a name": (variable(value="1"), "env[0].name: must be a string of printable ASCII"),
    "variable with =": (variable(name="A=B"), "env[0].name: 'A=B' must be a string of printable ASCII"),
    "variable of a number": (variable(name="A", value=1), "env[0].value: '1' must be a string"),
    "variable with NUL": (variable(name="A", value="a\0b"), "env[0].value: must hold no NUL"),
    "variable of a megabyte": (variable(name="A", value="x" * (MOST_TEXT + 1)), "env[0].value: must hold no NUL and"),
    "argument with NUL": (containers({"name": "s", "args": ["a", "\0"]}), "spec.containers[0].args: must hold no NUL"),
}


def test_a_template_of_too_many_values_is_refused():
    crowded = containers({**TRAINER, "ports": [{"containerPort": number} for number in range(1, 2_501)]})
    assert template_error(spec(crowded)) == "spec.workerGroups[0].template: holds more than 5000 values"


@pytest.mark.parametrize("name", REFUSED)
def test_a_template_that_would_fail_later_is_refused(name):
    template, message = REFUSED[name]
    assert message in template_error(spec(template))
    assert template_error(spec(template)).startswith("spec.workerGroups[0].template.")


def test_what_a_template_may_hold():
    env = [{"name": "A"}, {"name": "B", "value": ""}, {"name": "C.D", "valueFrom": {"fieldRef": {}}}]
    whole = containers({**TRAINER, "env": env}, {"name": "s-1"}, initContainers=[{"name": "s-2"}])
    whole["metadata"] = {"labels": {"a": "1"}, "annotations": {"b": "2"}}
    whole["spec"]["terminationGracePeriodSeconds"] = 0
    assert template_error(spec(whole)) is None


def mounting(*mounts):
    return containers({**TRAINER, "volumeMounts": list(mounts)})


DATA, READ_ONLY = {"name": "d", "mountPath": "/data/"}, {"name": "r", "mountPath": "/data/raw", "readOnly": True}


@pytest.mark.parametrize("path", ["/data", "/data/runs/1", "/data/rawer"])
def test_checkpoints_in_a_volume_of_rank_0(path):
    assert checkpoint_error(spec(mounting(DATA, READ_ONLY), checkpoint={"path": path})) is None


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ({}, "/data"),
        (mounting(DATA), "/database"),
        (mounting(DATA), "/other"),
        (mounting(DATA, READ_ONLY), "/data/raw/1"),
        (containers(TRAINER, {"name": "s", "volumeMounts": [DATA]}), "/data"),
    ],
    ids=["no volume", "a longer name", "elsewhere", "read-only", "another container's"],
)
def test_checkpoints_outside_of_the_volumes_of_rank_0(template, path):
    message = checkpoint_error(spec(template, checkpoint={"path": path}))
    assert message.startswith(f"spec.checkpoint.path: '{path}' lies in no volume of rank 0's pod: mount")


def test_a_job_without_a_checkpoint_path_needs_no_volume():
    assert checkpoint_error(spec({}, checkpoint={"persistentVolumeClaim": "c"})) is checkpoint_error(spec({})) is None
