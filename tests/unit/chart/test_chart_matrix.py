"""Every object of the chart, over a matrix of values and versions of Kubernetes, against the published schemas."""

import itertools
import re
import subprocess

import pytest
import yaml
from jsonschema import Draft202012Validator
from support.kubernetes_schemas import VERSIONS, complaint, complaints
from support.places import BIN
from support.published_crds import closed_schemas
from support.rendered_chart import ADMISSION, CASES, CHART, MONITORS, case, identity, of_kind, one, render

MONITOR_SCHEMAS = closed_schemas("monitor_kinds")
CLUSTER_WIDE = {"CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", *ADMISSION}
each_case = pytest.mark.parametrize("name", CASES)


@each_case
@pytest.mark.parametrize("version", VERSIONS)
def test_objects_are_valid(name, version):
    objects = [each for each in case(name, version) if each["kind"] not in MONITORS]
    assert "Deployment" in {each["kind"] for each in objects}
    assert complaints(objects, version) == {}


def test_the_versions_are_from_the_oldest_of_the_chart_to_the_newest_known():
    (oldest,) = re.findall(r">=(1\.\d+)\.0", yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"])
    assert VERSIONS[0] == oldest
    assert {f"1.{minor}" for minor in range(30, 36)} <= set(VERSIONS)


SWITCHES = {
    "crds.enabled": (True, False),
    "rbac.create": (True, False),
    "rbac.aggregate": (True, False),
    "podPolicy.enabled": (True, False),
    "injections.enabled": (True, False),
    "serviceAccount.create": (True, False),
    "podDisruptionBudget.enabled": (True, False),
    "monitoring.podMonitor.enabled": (False, True),
    "monitoring.serviceMonitor.enabled": (False, True),
    "monitoring.rules.enabled": (False, True),
    "monitoring.dashboards.enabled": (False, True),
    "networkPolicy.enabled": (False, True),
    "networkPolicy.jobs": (True, False),
    "test.enabled": (True, False),
    "replicas": (2, 1),
    "namespaces": ([], ["team-a", "team-b"]),
    "metrics.tlsSecretName": ("", "tls"),
    "gangProviders": (["volcano", "coscheduling"], []),
}


def all_pairs():
    """Yield 8 rows of values in which any two switches stand in all four ways.

    Each switch is on in four of the last seven rows, no two in the same four (Katona 1973): two such sets share a row,
    and each has one that the other lacks; in the first row all are off.
    """
    rows_on = list(itertools.islice(itertools.combinations(range(1, 8), 4), len(SWITCHES)))
    assert len(rows_on) == len(SWITCHES)
    for row in range(8):
        values = {"serviceAccount": {"name": "given"}}
        for (path, states), on in zip(SWITCHES.items(), rows_on, strict=True):
            *blocks, last = path.split(".")
            inner = values
            for block in blocks:
                inner = inner.setdefault(block, {})
            inner[last] = states[row in on]
        yield values


def test_objects_are_valid_for_every_pair_of_switches():
    for values in all_pairs():
        for rendered, versions in (("1.29", VERSIONS[:1]), ("1.30", VERSIONS[1:])):  # what the templates tell apart
            made = render(values=values, arguments=("--kube-version", rendered))
            objects = [each for each in made if each["kind"] not in MONITORS]
            assert len({identity(each) for each in made}) == len(made)
            assert {version: complaints(objects, version) for version in versions} == {each: {} for each in versions}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("kind", "part"), [("Deployment", "spec"), ("Service", "spec"), ("ClusterRole", "metadata")])
def test_an_unknown_field_of_an_object_is_complained_of(kind, part, version):
    wrong = of_kind(case("default", version), kind)[0]
    assert "replicass" in complaint({**wrong, part: {**wrong[part], "replicass": 2}}, version)


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
            assert complaint(each, "1.34") == ""
    deployment = one(named, "Deployment")
    assert deployment["spec"]["selector"]["matchLabels"]["app.kubernetes.io/instance"] == "123"
    assert all(isinstance(value, str) for each in named for value in each["metadata"].get("labels", {}).values())


@each_case
def test_lint_finds_nothing(name):
    command = [BIN / "helm", "lint", CHART, "--strict", "--values", "-"]
    done = subprocess.run(command, input=yaml.safe_dump(CASES[name]), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout
