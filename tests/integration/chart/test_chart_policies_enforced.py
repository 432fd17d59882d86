"""The chart's ValidatingAdmissionPolicies on a real API server: what they refuse, and where a label lifts them."""

import subprocess
from contextlib import closing

import pytest
import yaml
from heterotp_api import names
from support.kube import Kube, KubeError, make_namespace, until
from support.places import BIN
from support.pod_attacks import ACCEPTED, REFUSED, attacking_job
from support.rendered_chart import ADMISSION, of_kind, render

pytestmark = pytest.mark.integration
STRICT, LABELLED = "strict", "labelled"
INJECTION = {
    "apiVersion": names.API_VERSION,
    "kind": "StragglerInjection",
    "metadata": {"name": "slow"},
    "spec": {"jobRef": {"name": "any"}, "targets": {"ranks": [0]}, "slowdown": 2},
}


def attempt(kube, namespace, body):
    """Create an object as a dry run; return the API server's complaint, "" without one."""
    plural = "heterotpjobs" if body["kind"] == "HeteroTPJob" else "stragglerinjections"
    try:
        kube.request("POST", kube.path(plural, namespace) + "?dryRun=All", body)
    except KubeError as error:
        assert error.code == 403, error
        return str(error)
    return ""


@pytest.fixture(scope="module")
def kube(new_api_server):
    """An API server of its own with the policies in force: other tests make injections without labels."""
    policies = yaml.safe_dump_all(of_kind(render(), *ADMISSION))
    with new_api_server("-policies") as kubeconfig, closing(Kube(kubeconfig)) as kube:
        for namespace in (STRICT, LABELLED):
            make_namespace(kube, namespace)
        lifted = {names.NAMESPACE_PRIVILEGED: names.ALLOWED, names.NAMESPACE_INJECTIONS: names.ALLOWED}
        kube.patch("namespaces", None, LABELLED, {"metadata": {"labels": lifted}})
        kube.create("heterotpjobs", STRICT, attacking_job(REFUSED["host path"][0], "earlier"))
        apply = [BIN / "kubectl", "--kubeconfig", kubeconfig, "apply", "--validate=strict", "-f", "-"]
        subprocess.run(apply, input=policies, text=True, check=True, capture_output=True)
        until("jobs are judged", lambda: attempt(kube, STRICT, attacking_job(REFUSED["host path"][0])))
        until("injections are judged", lambda: attempt(kube, STRICT, INJECTION))
        yield kube


def test_the_expressions_have_no_warnings(kube):
    """Templates are dynamic: a misspelt variable or function would be shown here."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    for policy in kube.request("GET", path)["items"]:
        checking = policy.get("status", {}).get("typeChecking", {})
        unknown = [each for each in checking.get("expressionWarnings", ()) if "undeclared" in each["warning"]]
        assert unknown == []


@pytest.mark.parametrize("name", REFUSED)
def test_a_template_that_asks_for_too_much_is_refused(kube, name):
    pod, words = REFUSED[name]
    complaint = attempt(kube, STRICT, attacking_job(pod))
    assert words in complaint and f"{names.NAMESPACE_PRIVILEGED}={names.ALLOWED}" in complaint


@pytest.mark.parametrize("name", REFUSED)
def test_a_label_of_the_namespace_lifts_it(kube, name):
    assert attempt(kube, LABELLED, attacking_job(REFUSED[name][0])) == ""


@pytest.mark.parametrize("name", ACCEPTED)
def test_other_templates_are_accepted(kube, name):
    assert attempt(kube, STRICT, attacking_job(ACCEPTED[name])) == ""


def edit(kube, spec):
    path = kube.path("heterotpjobs", STRICT, "earlier") + "?dryRun=All"
    return kube.request("PATCH", path, {"spec": spec}, "application/merge-patch+json")


def test_a_job_from_before_the_policy_can_be_suspended_and_gets_no_second_such_template(kube):
    assert edit(kube, {"runPolicy": {"suspend": True}})["spec"]["runPolicy"]["suspend"] is True
    groups = attacking_job(REFUSED["privileged"][0])["spec"]["workerGroups"]
    with pytest.raises(KubeError, match=r"hostPath|privileged"):
        edit(kube, {"workerGroups": groups, "runPolicy": {"suspend": True}})


def test_injections_need_the_label_of_their_namespace(kube):
    assert f"{names.NAMESPACE_INJECTIONS}={names.ALLOWED}" in attempt(kube, STRICT, INJECTION)
    assert attempt(kube, LABELLED, INJECTION) == ""
