"""What the API server and the kubeconfig say, in one line each; no server is asked."""

import json
import re

import pytest
from heterotp_cli.errors import BadInput, Failed
from heterotp_cli.verbs.change_requests import RankSelector, SlowdownRequest
from heterotp_cli.verbs.cluster import ClusterTarget, open_job
from heterotp_cli.verbs.kube import Kube, Missing, failure, unreachable
from kubernetes import config
from support.cli_views import job_body, job_status, rank
from urllib3.connection import HTTPSConnection
from urllib3.exceptions import MaxRetryError, NewConnectionError

SERVER = "https://api:6443"


def refusal(code, message, **details):
    return json.dumps({"kind": "Status", "code": code, "message": message, "details": details})


@pytest.mark.parametrize(
    ("status", "text", "kind", "line"),
    [
        (
            404,
            "404 page not found\n",
            Failed,
            "HeteroTP is not installed in this cluster: https://api:6443 has no kinds of heterotp.io/v1alpha1",
        ),
        (404, refusal(404, 'heterotpjobs "x" not found', name="x"), Missing, 'heterotpjobs "x" not found'),
        (401, "", Failed, "https://api:6443 refuses the credentials of the kubeconfig: Unauthorized"),
        (403, refusal(403, 'User "u" cannot\npatch'), Failed, 'https://api:6443: User "u" cannot patch'),
        (409, refusal(409, "already exists"), Failed, "https://api:6443: already exists"),
        (422, refusal(422, "spec.slowdown: Invalid value"), BadInput, "spec.slowdown: Invalid value"),
        (500, "", Failed, "https://api:6443: answered 500"),
        (503, "[1]", Failed, "https://api:6443: [1]"),
    ],
)
def test_refusals(status, text, kind, line):
    found = failure(status, text, SERVER)
    assert (type(found), str(found)) == (kind, line)


def test_a_server_that_does_not_answer():
    refused = NewConnectionError(
        HTTPSConnection("api", 6443), "Failed to establish a new connection: [Errno 111] Connection refused"
    )
    line = (
        f"the API server {SERVER} does not answer: Failed to establish a new connection: [Errno 111] Connection refused"
    )
    assert str(unreachable(refused, SERVER)) == line
    assert str(unreachable(MaxRetryError(None, "/", refused), SERVER)) == line
    assert str(unreachable(Exception("SSLError\nno trust"), SERVER)).endswith("does not answer: SSLError no trust")


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: one
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts:
- {name: one, context: {cluster: c, user: u, namespace: team}}
- {name: two, context: {cluster: c, user: u}}
"""


@pytest.fixture
def kubeconfig(tmp_path):
    path = tmp_path / "config"
    path.write_text(KUBECONFIG)
    return str(path)


def test_the_namespace_is_the_contexts_unless_one_is_given(kubeconfig):
    assert Kube(kubeconfig, None, None).namespace == "team"
    assert Kube(kubeconfig, "two", None).namespace == "default"
    assert Kube(kubeconfig, "one", "mine").namespace == "mine"
    assert Kube(kubeconfig, None, None).server == "https://127.0.0.1:1"


def test_a_connection_that_is_refused_is_one_line(kubeconfig):
    words = r"^the API server https://127\.0\.0\.1:1 does not answer: .*refused$"
    with pytest.raises(Failed, match=words):
        open_job("demo", None, None, kubeconfig).look()


@pytest.mark.parametrize(
    ("text", "context", "line"),
    [
        (None, None, "--kubeconfig: '{}': Invalid kube-config file. No configuration found."),
        ("[", None, "--kubeconfig: '{}': while parsing a flow node"),
        ("[]", None, "--kubeconfig: '{}': "),
        (KUBECONFIG, "three", "--kubeconfig: '{}': Invalid kube-config file. Expected object with name three"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_one_line(tmp_path, text, context, line):
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BadInput, match=f"^{re.escape(line.format(path))}") as error:
        Kube(str(path), context, None)
    assert "\n" not in str(error.value)


def test_in_a_pod_the_service_account_is_used(monkeypatch, tmp_path):
    def load(client_configuration):
        client_configuration.host = "https://10.0.0.1:443"

    monkeypatch.setattr(config, "load_incluster_config", load)
    monkeypatch.setattr(config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    monkeypatch.setattr("heterotp_cli.verbs.kube.POD_NAMESPACE", tmp_path / "namespace")
    (tmp_path / "namespace").write_text("of-the-pod\n")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    kube = Kube(None, None, None)
    assert (kube.server, kube.namespace) == ("https://10.0.0.1:443", "of-the-pod")


class Objects:
    """Stands for an API server: objects in dictionaries."""

    namespace = "default"

    def __init__(self, *jobs):
        self.jobs = {job["metadata"]["name"]: job for job in jobs}
        self.made = {}

    def get(self, plural, namespace, name):
        return (self.jobs if plural == "heterotpjobs" else self.made).get(name)

    def all(self, plural, namespace, selector=""):
        return list((self.jobs if plural == "heterotpjobs" else self.made).values())

    def create(self, plural, namespace, body):
        self.made[body["metadata"]["name"]] = body
        return body

    def delete(self, plural, namespace, name):
        del self.made[name]

    def patch(self, plural, namespace, name, patch):
        job = self.jobs[name]
        job["metadata"] = {**job["metadata"], "generation": job["metadata"]["generation"] + 1}
        self.jobs[name] = job = {**job, "spec": {**job["spec"], "balancing": patch[0]["value"]}}
        return job


def target(job=None, options=()):
    return ClusterTarget(Objects(job or job_body(job_status())), "demo", "default", options)


def test_an_injection_of_another_creator_is_not_replaced():
    seen = target()
    seen.kube.made["demo-rank-3"] = {"metadata": {"name": "demo-rank-3"}, "spec": {"jobRef": {"name": "demo"}}}
    with pytest.raises(BadInput, match=r"^--rank 3: StragglerInjection 'demo-rank-3' was not made by this command"):
        seen.inject(RankSelector((3,)), SlowdownRequest(4.0))


def test_nodes_are_checked_only_if_the_node_of_every_rank_is_known():
    with pytest.raises(BadInput, match=r"^--node: n9: no rank of the job runs there$"):
        target().inject(RankSelector(nodes=("n9",)), SlowdownRequest(4.0))
    unbound = job_body(job_status(rank(3, node=None)))
    assert (
        target(unbound)
        .inject(RankSelector(nodes=("n9",)), SlowdownRequest(4.0))
        .description.startswith("StragglerInjection demo-node-n9 slows")
    )


@pytest.mark.parametrize(
    ("balancing", "policy", "replaced", "undo_command"),
    [
        ({}, "default", "the default policy", "kubectl heterotp policy demo -n team --default"),
        ({}, "team", "BalancingPolicy team, which selects the job", "kubectl heterotp policy demo -n team --default"),
        (
            {"policyRef": {"name": "semi"}},
            "semi",
            "policyRef semi",
            "kubectl patch heterotpjobs.heterotp.io demo -n team --type json -p "
            '\'[{"op": "add", "path": "/spec/balancing", "value": {"policyRef": {"name": "semi"}}}]\'',
        ),
        (
            {"policy": {"strategy": "ZERO", "window": 7}},
            "inline",
            "the inline policy ZERO",
            "kubectl heterotp policy demo -n team --strategy ZERO --set window=7",
        ),
        ({"policy": {"strategy": "ZERO", "news": 1}}, "inline", "the inline policy ZERO", ""),
        ({"policy": {"strategy": "MIG"}}, "inline", "the inline policy MIG", ""),
    ],
    ids=["default", "selected", "reference", "inline", "of a newer version", "the same"],
)
def test_a_policy_change_names_the_old_policy_and_its_undo_command(balancing, policy, replaced, undo_command):
    job = job_body(job_status(balancing={"policy": policy}))
    job["spec"]["balancing"] = balancing
    change = target(job, ("-n team",)).set_policy("mig", None, ())
    assert change.description == f"HeteroTPJob demo: policy MIG; replaces {replaced}"
    assert change.undo_command == undo_command


def test_a_job_that_has_ended_is_not_changed():
    for change in (lambda t: t.inject(RankSelector((3,)), SlowdownRequest(4.0)), lambda t: t.set_default()):
        with pytest.raises(BadInput, match=r"^JOB: 'demo': it has Succeeded: nothing changes any more$"):
            change(target(job_body(job_status(phase="Succeeded"))))


def test_removal_of_an_injection_that_no_rank_applied_is_not_awaited():
    seen = target()
    seen.inject(RankSelector((3,)), SlowdownRequest(4.0))
    assert seen.remove_injections(RankSelector()).status(0.0).text == "no rank had applied it yet"
    assert seen.kube.made == {}


def test_injections_of_another_job_stay():
    seen = target()
    seen.inject(RankSelector((3,)), SlowdownRequest(4.0))
    seen.kube.made["other-rank-3"] = {"metadata": {"name": "other-rank-3"}, "spec": {"jobRef": {"name": "other"}}}
    assert seen.remove_injections(RankSelector()).description == "StragglerInjection demo-rank-3: taken back"
    assert list(seen.kube.made) == ["other-rank-3"]


def test_an_injection_deleted_meanwhile_is_reported():
    seen = target()
    change = seen.inject(RankSelector((3,)), SlowdownRequest(4.0))
    seen.kube.made.clear()
    assert change.status(0.0).text == "StragglerInjection demo-rank-3 was deleted"
