"""The operator's key, the secrets of gangs and their NetworkPolicies on a real API server, by the chart's rights."""

import base64
import json
from contextlib import closing
from urllib.error import HTTPError

import pytest
import yaml
from heterotp_api import names
from heterotp_api.names import Env
from heterotp_operator.reconcile.gang_secret import OperatorKey
from support.gang import Gang, job
from support.kube import Kube, KubeError, make_namespace, until
from support.rendered_chart import of_kind, pod_of, render

pytestmark = pytest.mark.integration
SYSTEM, TEAM, KEY = "closed-system", "closed-team", "r-operator-key"
POLICIES = f"/apis/networking.k8s.io/v1/namespaces/{TEAM}/networkpolicies"


class Release:
    """The rights and settings of a chart that serves one namespace, without its pods."""

    def __init__(self, kube, folder, jobs):
        values = (
            "crds.enabled=false",
            f"namespaces={{{TEAM}}}",
            "networkPolicy.enabled=true",
            f"networkPolicy.jobs={jobs}",
        )
        objects = [each for each in render(*values, namespace=SYSTEM) if "annotations" not in each["metadata"]]
        for kind, plural in (("ServiceAccount", "serviceaccounts"), ("Role", "roles"), ("RoleBinding", "rolebindings")):
            for each in of_kind(objects, kind):
                self._apply(kube, plural, each)
        self.kubeconfig = folder / f"kubeconfig-{jobs}"
        self.account = pod_of(objects)["spec"]["serviceAccountName"]
        self._write_kubeconfig(kube)
        env = pod_of(objects)["spec"]["containers"][0]["env"]
        self.settings = {each["name"]: each["value"] for each in env}

    def _apply(self, kube, plural, body):
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        path = f"{kube.path(plural, namespace, name)}?fieldManager=helm&force=true"
        kube.request("PATCH", path, body, "application/apply-patch+yaml")

    def _write_kubeconfig(self, kube):
        path = kube.path("serviceaccounts", SYSTEM, self.account, "token")
        token = kube.request("POST", path, {"spec": {}})["status"]["token"]
        cluster = {"name": "c", "cluster": {"server": kube.server, "certificate-authority": str(kube.authority)}}
        user, context = {"name": "u", "user": {"token": token}}, {"name": "c", "context": {"cluster": "c", "user": "u"}}
        document = {"apiVersion": "v1", "kind": "Config", "current-context": "c"}
        document |= {"clusters": [cluster], "users": [user], "contexts": [context]}
        self.kubeconfig.write_text(yaml.safe_dump(document))


@pytest.fixture(scope="module")
def folder(kube, tmp_path_factory):
    make_namespace(kube, SYSTEM)
    make_namespace(kube, TEAM)
    return tmp_path_factory.mktemp("closed")


@pytest.fixture
def operators(kube, folder, new_operator):
    """A function that starts an operator by the rights of a release, and the logs of all."""
    made = []

    def start(identity, jobs="true"):
        release = Release(kube, folder, jobs)
        more = {"HETEROTP_IDENTITY": identity, "HETEROTP_LEASE_NAMESPACE": SYSTEM, "HETEROTP_LOG_LEVEL": "DEBUG"}
        operator = new_operator(TEAM, kubeconfig=release.kubeconfig, **{**release.settings, **more})
        operator.log = folder / f"{identity}.log"
        made.append(operator.start())
        until(lambda: f"{identity} is ready: {operator.log.read_text()}", lambda: ready(operator))
        return operator

    start.logs = lambda: "".join(operator.log.read_text() for operator in made)
    yield start
    for operator in made:
        if operator.process.poll() is None:
            operator.kill()


def ready(operator):
    try:
        return operator.fetch("/readyz") == "ok"
    except HTTPError as error:
        assert error.code == 503
        return False
    except OSError:
        return False  # not listening yet


def environment(pod):
    container = next(each for each in pod["spec"]["containers"] if each["name"] == names.CONTAINER)
    return {each["name"]: each.get("value") for each in container["env"]}


def secrets(pods):
    return {environment(pod)[Env.RENDEZVOUS_SECRET] for pod in pods}


def network_policy(kube, name):
    return kube.get("networkpolicies", TEAM, names.network_policy_name(name))


def test_two_operators_make_one_key_and_a_gang_outlives_both(kube, operators):
    first, second = operators("one"), operators("two")
    stored = kube.get("secrets", SYSTEM, KEY)
    key = base64.b64decode(stored["data"]["key"])
    gang = Gang(kube, TEAM, job("closed", (("a", 1), ("b", 2))))
    uid = gang.body["metadata"]["uid"]
    gang.run_all(1)
    assert secrets(gang.pods(1)) == {OperatorKey(key).secret(uid, 1)}
    for operator in (first, second):
        operator.kill()

    operators("three")
    gang.end(gang.pods(1)[0], 1)
    assert secrets(gang.attempt(2)) == {OperatorKey(key).secret(uid, 2)}  # the first attempt was the third operator's
    assert kube.get("secrets", SYSTEM, KEY) == stored
    assert [each["metadata"]["name"] for each in kube.list("secrets", SYSTEM)] == [KEY]

    events = [each["message"] for each in kube.list("events", TEAM)]
    shown = json.dumps([gang.live(), gang.children(), events]) + operators.logs()
    assert not any(form in shown for form in (stored["data"]["key"], key.hex(), repr(key)[2:-1]))
    assert not any(OperatorKey(key).secret(uid, attempt) in operators.logs() for attempt in (1, 2))
    gang.delete()


def test_a_policy_is_owned_by_its_job_put_right_and_deleted_with_it(kube, operators):
    operators("four")
    gang = Gang(kube, TEAM, job("shielded"))
    gang.run_all(1)
    made = network_policy(kube, "shielded")
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (gang.body["metadata"]["uid"], True)
    (operator,) = made["spec"]["ingress"][1]["from"]
    assert operator["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": SYSTEM}}

    for damage in (
        {"spec": {"ingress": [{}]}},
        {"spec": {"podSelector": {"matchLabels": {"more": "x"}}}},
        {"spec": {"policyTypes": ["Ingress", "Egress"]}},
        {"metadata": {"labels": {names.LABEL_MANAGED_BY: None}}},
    ):
        kube.patch("networkpolicies", TEAM, names.network_policy_name("shielded"), damage)
        as_made = lambda: same(network_policy(kube, "shielded"), made)  # noqa: E731
        until(lambda damage=damage: f"as before {damage}: {network_policy(kube, 'shielded')}", as_made)
    kube.delete("networkpolicies", TEAM, names.network_policy_name("shielded"))
    until("it is back", lambda: network_policy(kube, "shielded"))
    assert gang.status["attempt"] == 1
    gang.delete()
    # the garbage collector learns of a new kind within 30 s
    until("it goes with its job", lambda: network_policy(kube, "shielded") is None, 120)


def same(live, made):
    return live and (live["spec"], live["metadata"]["labels"]) == (made["spec"], made["metadata"]["labels"])


def test_policies_are_removed_where_jobs_have_none_any_more(kube, operators):
    before = operators("five")
    gang = Gang(kube, TEAM, job("opened"))
    gang.run_all(1)
    assert network_policy(kube, "opened")
    version = network_policy(kube, "opened")["metadata"]["resourceVersion"]
    assert before.stop() == 0
    # what the operator wrote is what it compares with: nothing was written again and again
    assert network_policy(kube, "opened")["metadata"]["resourceVersion"] == version
    operators("six", jobs="false")
    until("it is gone", lambda: network_policy(kube, "opened") is None)
    assert (gang.status["attempt"], gang.status["phase"]) == (1, "Running")
    gang.delete()


def test_a_secret_that_holds_no_key_ends_the_operator_with_one_line(kube, folder, new_operator):
    body = {"metadata": {"name": "broken"}, "stringData": {"key": "short"}}
    kube.create("secrets", SYSTEM, body)
    where = {"HETEROTP_LEASE_NAMESPACE": SYSTEM, "HETEROTP_KEY_SECRET_NAME": "broken"}
    operator = new_operator(TEAM, **where)
    operator.log = folder / "broken.log"
    operator.start()
    until("it ends", lambda: operator.process.poll() is not None)
    assert operator.process.poll() == names.EXIT_BAD_INPUT
    (line,) = operator.log.read_text().splitlines()
    assert line.startswith("heterotp-operator: Secret closed-system/broken: data.key: has 5 bytes: must have 32")
    kube.delete("secrets", SYSTEM, "broken")


def test_an_operator_without_rights_on_its_key_is_not_ready_and_leads_nothing(kube, folder, new_operator):
    release = Release(kube, folder, "true")
    where = {**release.settings, "HETEROTP_LEASE_NAMESPACE": SYSTEM, "HETEROTP_KEY_SECRET_NAME": "not-the-charts"}
    operator = new_operator(TEAM, kubeconfig=release.kubeconfig, **where)
    operator.log = folder / "rightless.log"
    operator.start()
    until("it says why", lambda: "Secret closed-system/not-the-charts: 403 Forbidden" in operator.log.read_text())
    assert not ready(operator) and operator.fetch("/healthz") == "ok"
    assert operator.stop() == 0
    assert kube.get("secrets", SYSTEM, "not-the-charts") is None


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"/api/v1/namespaces/{SYSTEM}/secrets"),
        ("GET", f"/api/v1/namespaces/{SYSTEM}/secrets/other"),
        ("GET", f"/api/v1/namespaces/{TEAM}/secrets/{KEY}"),
        ("DELETE", f"/api/v1/namespaces/{SYSTEM}/secrets/{KEY}"),
        ("DELETE", f"{POLICIES}/shielded-gang"),
    ],
)
def test_the_operators_rights_end_there(kube, folder, method, path):
    release = Release(kube, folder, "true")
    with closing(Kube(release.kubeconfig)) as operator, pytest.raises(KubeError) as refused:
        operator.request(method, path)
    assert refused.value.code == 403
