"""ValidatingAdmissionPolicies of the chart: which objects in which namespaces they judge, and when they are made.

What their expressions refuse is shown by a real API server in tests/integration/chart/test_chart_policies_enforced.py.
"""

import pytest
from heterotp_api import names
from heterotp_api.crd import KINDS
from support.rendered_chart import ADMISSION, of_kind, one, render

POLICY, BINDING = ADMISSION
PLURALS = {kind.plural for kind in KINDS}
JUDGED = [("r-pods", "heterotpjobs", names.NAMESPACE_PRIVILEGED)]
JUDGED += [("r-injections", "stragglerinjections", names.NAMESPACE_INJECTIONS)]
each_policy = pytest.mark.parametrize(("name", "plural", "label"), JUDGED)


def made(*sets, **how):
    return {each["metadata"]["name"] for each in of_kind(render(*sets, **how), POLICY)}


@each_policy
def test_a_policy_judges_new_objects_of_one_kind(name, plural, label):
    spec = one(render(), POLICY, name)["spec"]
    assert spec["failurePolicy"] == "Fail"
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert plural in PLURALS
    assert rule == {
        "apiGroups": [names.GROUP],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": [plural],  # not its status, which the operator writes
    }


@each_policy
def test_a_namespaces_label_lifts_a_policy(name, plural, label):
    spec = one(render(), BINDING, name)["spec"]
    assert (spec["policyName"], spec["validationActions"]) == (name, ["Deny"])
    (term,) = spec["matchResources"]["namespaceSelector"]["matchExpressions"]
    assert term == {"key": label, "operator": "NotIn", "values": [names.ALLOWED]}


@each_policy
def test_the_message_names_the_label(name, plural, label):
    for each in one(render(), POLICY, name)["spec"]["validations"]:
        assert f"{label}={names.ALLOWED}" in each["message"] and "\n" not in each["message"]
        assert each["reason"] == "Forbidden"


def test_injections_that_are_switched_off_are_refused_in_every_namespace():
    objects = render("injections.enabled=false")
    assert "matchResources" not in one(objects, BINDING, "r-injections")["spec"]
    (only,) = one(objects, POLICY, "r-injections")["spec"]["validations"]
    assert (only["expression"], "switched off" in only["message"]) == ("false", True)


def test_the_policy_for_pods_can_be_left_out():
    assert made("podPolicy.enabled=false") == {"r-injections"}


@pytest.mark.parametrize("version", ["1.29", "1.29.4-gke.1"])
def test_there_are_no_policies_before_kubernetes_1_30(version):
    assert made(arguments=("--kube-version", version)) == set()
    assert made(arguments=("--kube-version", "1.30.0-gke.1")) == {"r-pods", "r-injections"}


def test_an_api_server_that_lists_its_kinds_without_the_policies_gets_none():
    pod, policy = "v1/Pod", f"admissionregistration.k8s.io/v1/{POLICY}"
    newest = ("--kube-version", "1.34")
    assert made(arguments=(*newest, "--api-versions", pod)) == set()
    assert made(arguments=(*newest, "--api-versions", pod, "--api-versions", policy)) == {"r-pods", "r-injections"}


def test_listed_namespaces_have_none_as_they_are_kinds_of_the_whole_cluster():
    assert made("namespaces={team-a}") == set()
