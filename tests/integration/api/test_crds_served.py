"""A real API server accepts the CRDs and judges the shared table of manifests as the models do."""

import json
import subprocess

import pytest
from heterotp_api.crd import KINDS, crds
from heterotp_api.load import parse_object
from heterotp_api.names import GROUP, VERSION
from heterotp_api.reporting import WandB
from heterotp_api.run_policy import Gang
from heterotp_api.schema import UNDECLARED_DEFAULT
from heterotp_api.strategy_blocks import Mig, Semi, Zero
from kubernetes import client, config
from pydantic.alias_generators import to_camel
from support.manifest_table import REFUSED_FILES, TABLE, manifest, merged, refused_text
from support.places import BIN

pytestmark = pytest.mark.integration
UNDECLARED = {
    to_camel(name)
    for model in (Gang, WandB, Zero, Mig, Semi)
    for name, field in model.model_fields.items()
    if (field.json_schema_extra or {}).get(UNDECLARED_DEFAULT)
}
PLURAL = {kind.name: kind.plural for kind in KINDS}


@pytest.fixture(scope="module")
def objects(kubeconfig):
    with config.new_client_from_config(str(kubeconfig)) as api:
        yield client.CustomObjectsApi(api)


def create(objects, body, **options):
    return objects.create_namespaced_custom_object(
        GROUP, VERSION, "default", PLURAL[body["kind"]], body, field_validation="Strict", **options
    )


def message(error):
    return json.loads(error.value.body)["message"]


def test_all_crds_are_established(kubeconfig):
    with config.new_client_from_config(str(kubeconfig)) as api:
        for crd in crds():
            live = client.ApiextensionsV1Api(api).read_custom_resource_definition(crd["metadata"]["name"])
            states = {condition.type: condition.status for condition in live.status.conditions}
            assert states["Established"] == states["NamesAccepted"] == "True"
            assert "NonStructuralSchema" not in states


@pytest.mark.parametrize("case", TABLE["good"], ids=lambda case: case["name"])
def test_good_manifests_are_accepted_with_the_models_defaults(objects, case):
    body = manifest(case)
    stored = create(objects, body, dry_run="All")
    assert stored["spec"] == with_defaults(parse_object(body).dump()["spec"], stored["spec"])


def with_defaults(ours, theirs):
    """Return our dump; what neither the user nor a default gave (empty templates) is left out on the server."""
    for group, stored in zip(ours.get("workerGroups", ()), theirs.get("workerGroups", ()), strict=True):
        if "template" not in stored:
            assert group.pop("template") == {}
    return without_undeclared(ours, theirs)


def without_undeclared(ours, theirs):
    """Return our dump without the defaults that only a preset or the models fill in, also whole blocks of a preset."""
    if not isinstance(ours, dict):
        return ours
    filled_in = {*UNDECLARED, *(("zero", "mig", "semi") if ours.get("preset") else ())}
    return {
        key: without_undeclared(value, theirs.get(key, {}))
        for key, value in ours.items()
        if key in theirs or key not in filled_in
    }


@pytest.mark.parametrize("case", TABLE["bad"], ids=lambda case: case["name"])
def test_bad_manifests_are_refused_with_the_reason(objects, case):
    with pytest.raises(client.ApiException) as error:
        create(objects, manifest(case), dry_run="All")
    assert error.value.status in (400, 422)  # 400: an unknown field
    assert case["server"] in message(error)


@pytest.mark.parametrize("case", REFUSED_FILES, ids=lambda case: case["name"])
def test_kubectl_refuses_the_files_that_the_models_refuse(kubeconfig, case):
    command = [BIN / "kubectl", "--kubeconfig", kubeconfig, "create", "--dry-run=server", "-f", "-"]
    done = subprocess.run(command, input=refused_text(case), capture_output=True, text=True)
    assert done.returncode != 0 and "created" not in done.stdout, done.stdout


def test_unknown_fields_are_refused_by_name(objects):
    body = merged(TABLE["base"], {"spec": {"training": {"learningrate": 0.1}}})
    with pytest.raises(client.ApiException) as error:
        create(objects, body, dry_run="All")
    assert 'unknown field "spec.training.learningrate"' in message(error)


@pytest.fixture
def running_job(objects):
    body = merged(
        TABLE["base"], {"metadata": {"name": "frozen"}, "spec": {"checkpoint": {"persistentVolumeClaim": "c"}}}
    )
    create(objects, body)
    yield "frozen"
    objects.delete_namespaced_custom_object(GROUP, VERSION, "default", "heterotpjobs", "frozen")


def edit(objects, name, patch):
    return objects.patch_namespaced_custom_object(
        GROUP, VERSION, "default", "heterotpjobs", name, patch, _content_type="application/merge-patch+json"
    )


@pytest.mark.parametrize("case", TABLE["frozen"], ids=lambda case: case["name"])
def test_fields_of_a_running_gang_cannot_be_edited(objects, running_job, case):
    with pytest.raises(client.ApiException) as error:
        edit(objects, running_job, case["patch"])
    assert case["server"] in message(error)


def test_suspended_jobs_may_be_resized_but_not_given_away(objects, running_job):
    edit(objects, running_job, {"spec": {"runPolicy": {"suspend": True}}})
    resized = {"spec": {"tensorParallelDegree": 2, "workerGroups": [{"name": "one", "pods": 2}]}}
    assert edit(objects, running_job, resized)["spec"]["tensorParallelDegree"] == 2
    with pytest.raises(client.ApiException) as error:
        edit(objects, running_job, {"spec": {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}})
    assert "runPolicy.managedBy cannot change" in message(error)
