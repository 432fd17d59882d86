"""Every object of the chart, over a matrix of values and versions of Kubernetes, against the published schemas."""

import json
import subprocess
from functools import cache

import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft202012Validator
from support.places import BIN
from support.published_crds import closed_schemas
from support.rendered_chart import ADMISSION, CASES, CHART, MONITORS, case, identity, of_kind, one, render

VERSIONS = [
    "1.29",
    "1.32",
    "1.34",
    kubernetes_validate.latest_version(),
]  # from Chart.yaml's oldest to the newest known
MONITOR_SCHEMAS = closed_schemas("monitor_kinds")
CLUSTER_WIDE = {"CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", *ADMISSION}
each_case = pytest.mark.parametrize("name", CASES)


@cache  # most objects are the same in most cases
def complaint(text, version):
    """Return the schema error of an object for a version of Kubernetes, "" without an error."""
    try:
        kubernetes_validate.validate(json.loads(text), version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return f"{'.'.join(map(str, error.path))}: {error.message}"
    return ""


@each_case
@pytest.mark.parametrize("version", VERSIONS)
def test_objects_are_valid(name, version):
    objects = [each for each in case(name, version) if each["kind"] not in MONITORS]
    assert "Deployment" in {each["kind"] for each in objects}
    found = {identity(each): complaint(json.dumps(each), version) for each in objects}
    assert {which: words for which, words in found.items() if words} == {}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("kind", "part"), [("Deployment", "spec"), ("Service", "spec"), ("ClusterRole", "metadata")])
def test_an_unknown_field_of_an_object_is_complained_of(kind, part, version):
    wrong = of_kind(case("default", version), kind)[0]
    text = json.dumps({**wrong, part: {**wrong[part], "replicass": 2}})
    assert "replicass" in complaint(text, version)


@each_case
def test_monitors_are_valid(name):
    for each in of_kind(case(name), *MONITORS):
        assert set(each) == {"apiVersion", "kind", "metadata", "spec"}
        Draft202012Validator(MONITOR_SCHEMAS[each["apiVersion"], each["kind"]]).validate(each["spec"])


@each_case
def test_every_object_is_there_once_and_in_a_namespace(name):
    objects = case(name)
    assert len({identity(each) for each in objects}) == len(objects)
    for each in objects:
        assert ("namespace" in each["metadata"]) == (each["kind"] not in CLUSTER_WIDE), identity(each)


NUMBERS = {
    "namespaces": ["456"],
    "serviceAccount": {"name": "789"},
    "priorityClassName": "1.5",
    "metrics": {"tlsSecretName": "0x1"},
    "monitoring": {
        "podMonitor": {"enabled": True},
        "serviceMonitor": {"enabled": True},
        "rules": {"enabled": True, "operatorJob": "1.5"},
        "dashboards": {"enabled": True, "namespace": "321"},
    },
    "networkPolicy": {"enabled": True},
    "test": {"serviceAccountName": "012"},
}


def test_names_that_look_like_numbers_stay_names():
    named, plain = render(release="123", namespace="11", values=NUMBERS), render(values=NUMBERS)
    assert len(named) == len(plain) > 15
    for each in named:
        if each["kind"] in MONITORS:
            Draft202012Validator(MONITOR_SCHEMAS[each["apiVersion"], each["kind"]]).validate(each["spec"])
            assert all(isinstance(each["metadata"][name], str) for name in ("name", "namespace"))
        else:
            assert complaint(json.dumps(each), "1.34") == ""
    deployment = one(named, "Deployment")
    assert deployment["spec"]["selector"]["matchLabels"]["app.kubernetes.io/instance"] == "123"
    assert all(isinstance(value, str) for each in named for value in each["metadata"].get("labels", {}).values())


@each_case
def test_lint_finds_nothing(name):
    command = [BIN / "helm", "lint", CHART, "--strict", "--values", "-"]
    done = subprocess.run(command, input=yaml.safe_dump(CASES[name]), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout
