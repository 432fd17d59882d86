"""Every object of the chart, over a matrix of values and versions of Kubernetes, against the published schemas."""

import subprocess

import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft202012Validator
from places import BIN
from published_crds import closed_schemas
from rendered_chart import CASES, CHART, MONITORS, case, identity, of_kind

VERSIONS = [version for version in kubernetes_validate.major_minor_supported_versions() if (1, 29) <= version]
MONITOR_SCHEMAS = closed_schemas("monitor_kinds")
CLUSTER_WIDE = {"CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding"}
each_case = pytest.mark.parametrize("name", CASES)


@each_case
@pytest.mark.parametrize("version", VERSIONS)
def test_objects_are_valid(name, version):
    for each in case(name, version):
        if each["kind"] not in MONITORS:
            kubernetes_validate.validate(each, version, strict=True)


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


@each_case
def test_lint_finds_nothing(name):
    command = [BIN / "helm", "lint", CHART, "--strict", "--values", "-"]
    done = subprocess.run(command, input=yaml.safe_dump(CASES[name]), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout
