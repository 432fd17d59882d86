"""The pod of `helm test`: its program, its rights, and the errors that it detects."""

import asyncio
import http.client
import importlib.util
import socket
import urllib.error

import pytest
from heterotp_api.job import HeteroTPJob
from heterotp_operator.certificate import Certificate
from heterotp_operator.cluster import JOBS
from heterotp_operator.metrics import Metrics
from heterotp_operator.server import Server
from pydantic import ValidationError
from support.made_certificate import made
from support.rendered_chart import CHART, installed, of_kind, one, render

SPEC = importlib.util.spec_from_file_location("smoke", CHART / "files" / "smoke.py")
smoke = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(smoke)
LAST_TRIES = 90  # two dry runs of 30 s each, and some replicas of 5 s each
ENVIRONMENT = {
    "KUBERNETES_SERVICE_HOST": "fd00::1",
    "KUBERNETES_SERVICE_PORT": "443",
    "NAMESPACE": "system",
    "OPERATOR": "r-operator.system.svc",
    "SCHEME": "http",
    "REPLICAS": "2",
}


@pytest.fixture(scope="module")
def hooks():
    """The objects of `helm test`."""
    objects = render()
    return [each for each in objects if each not in installed(objects)]


def weight(hook):
    return int(hook["metadata"]["annotations"].get("helm.sh/hook-weight", 0))


def test_account_role_and_binding_come_before_the_pod_and_go_after_it(hooks):
    assert all(each["metadata"]["annotations"]["helm.sh/hook"] == "test" for each in hooks)
    kinds = [each["kind"] for each in sorted(hooks, key=weight)]
    assert kinds == ["ServiceAccount", "Role", "RoleBinding", "Pod"]
    assert len({weight(each) for each in hooks}) == len(hooks)
    policies = {each["kind"]: each["metadata"]["annotations"]["helm.sh/hook-delete-policy"] for each in hooks}
    assert policies.pop("Pod") == "before-hook-creation"  # its log is to be read
    assert set(policies.values()) == {"before-hook-creation,hook-succeeded"}


def test_its_account_may_do_no_more_than_the_dry_run(hooks):
    assert one(hooks, "Role")["rules"] == [
        {"apiGroups": ["heterotp.io"], "resources": ["heterotpjobs"], "verbs": ["create"]}
    ]
    account = one(hooks, "ServiceAccount")["metadata"]["name"]
    assert one(hooks, "Pod")["spec"]["serviceAccountName"] == account
    assert one(hooks, "RoleBinding")["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": "system"}]


def test_it_runs_our_script_in_the_operators_image(hooks):
    (container,) = one(hooks, "Pod")["spec"]["containers"]
    (operator,) = one(render(), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == operator["image"]
    assert container["command"] == ["python3", "-I", "-c"]
    assert container["args"] == [(CHART / "files" / "smoke.py").read_text()]
    assert {each["name"]: each["value"] for each in container["env"]} == {
        "NAMESPACE": "system",
        "OPERATOR": "r-operator.system.svc",
        "SCHEME": "http",
        "REPLICAS": "2",
    }
    assert one(hooks, "Pod")["spec"]["activeDeadlineSeconds"] >= smoke.PATIENCE_SECONDS + LAST_TRIES


def test_it_asks_over_tls_where_the_operator_serves_so():
    (container,) = one(render("metrics.tlsSecretName=operator-tls"), "Pod")["spec"]["containers"]
    assert {"name": "SCHEME", "value": "https"} in container["env"]


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        (("test.enabled=false",), set()),
        (("rbac.create=false",), set()),
        (("test.serviceAccountName=tester",), {"Pod"}),
        (("rbac.create=false", "test.serviceAccountName=tester"), {"Pod"}),
    ],
    ids="+".join,
)
def test_it_can_be_left_out_or_take_another_account(values, kinds):
    objects = render(*values)
    found = [each for each in objects if each not in installed(objects)]
    assert {each["kind"] for each in found} == kinds
    assert all(pod["spec"]["serviceAccountName"] == "tester" for pod in of_kind(found, "Pod"))


# -- the script -----------------------------------------------------------------------------------------------
def answers(monkeypatch, *codes):
    """Set the next responses of the API server, in order."""
    text = iter(codes)
    monkeypatch.setattr(smoke, "dry_run", lambda *_: next(text))


@pytest.mark.parametrize(
    ("codes", "wrong"),
    [
        ([(404, "the server could not find the requested resource")], "does not take a HeteroTPJob: 404"),
        ([(403, "tester may not")], "403 tester may not"),
        ([(400, 'unknown field "status.completedAttempt"')], 'completedAttempt"; the CRDs are older'),
        ([(201, ""), (201, "")], "takes a HeteroTPJob of 3 ranks in 2 pods"),
        ([(201, ""), (422, "another field")], "the CRDs are old"),
    ],
    ids=["no CRDs", "no right", "no field", "no rules", "another rule"],
)
def test_kinds_that_are_not_right_are_named(monkeypatch, codes, wrong):
    answers(monkeypatch, *codes)
    with pytest.raises(smoke.Broken, match=wrong):
        smoke.check_kinds("https://server", "system", "token", None)


def test_the_job_of_the_dry_run_is_valid_and_has_the_fields_that_only_server_side_apply_needs():
    assert HeteroTPJob.model_validate(smoke.job(2)).status.completed_attempt == 0
    with pytest.raises(ValidationError, match="tensorParallelDegree"):
        HeteroTPJob.model_validate(smoke.job(3))


def test_kinds_that_are_right_pass(monkeypatch):
    answers(monkeypatch, (201, ""), (422, "spec.tensorParallelDegree: must be the sum"))
    smoke.check_kinds("https://server", "system", "token", None)


@pytest.mark.parametrize(
    "error",
    [urllib.error.URLError("connection refused"), http.client.IncompleteRead(b""), http.client.BadStatusLine("")],
    ids=lambda error: type(error).__name__,
)
def test_a_server_that_does_not_answer_is_named(monkeypatch, error):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(smoke.urllib.request, "urlopen", refuse)
    with pytest.raises(smoke.Broken, match="https://server does not answer") as text:
        smoke.dry_run("https://server", "system", {}, "token", None)
    assert "token" not in str(text.value)


STANDBY, LEADER = "heterotp_operator_leader 0.0\n", "heterotp_operator_leader 1.0\n"
REQUESTS = "heterotp_operator_api_requests_total"
DENIED = f'{REQUESTS}{{code="403",resource="heterotpjobs",verb="list"}} 7.0\n'
OTHERS = f'{REQUESTS}{{code="200",resource="pods",verb="list"}} 1.0\n'
LISTED = f'{OTHERS}{REQUESTS}{{code="200",resource="heterotpjobs",verb="list"}} 2.0\n'


@pytest.mark.parametrize(
    ("shown", "wrong"),
    [
        ([STANDBY, LEADER + LISTED], None),
        ([STANDBY, STANDBY], "2 operators are ready, 0 lead; wanted: 2, 1"),
        ([LEADER + LISTED, LEADER + LISTED], "2 operators are ready, 2 lead; wanted: 2, 1"),
        ([LEADER + LISTED], "1 operators are ready, 1 lead; wanted: 2, 1"),
        ([], "0 operators are ready, 0 lead; wanted: 2, 1"),
        (["", LEADER + LISTED], None),  # one that has only begun
        ([STANDBY, LEADER], "the leader has not listed heterotpjobs"),
        ([STANDBY, LEADER + OTHERS + DENIED], "the leader has not listed heterotpjobs"),
        ([STANDBY + LISTED, LEADER + DENIED], "the leader has not listed heterotpjobs"),  # it led once
    ],
    ids=["right", "none leads", "two lead", "one is missing", "none", "new", "idle", "no rights", "standby listed"],
)
def test_one_of_all_replicas_leads_and_may_list_jobs(monkeypatch, shown, wrong):
    monkeypatch.setattr(smoke, "addresses", lambda host: range(len(shown)))
    monkeypatch.setattr(smoke, "metrics", lambda scheme, address: shown[address])
    if wrong is None:
        smoke.check_operators("http", "operator", 2)
    else:
        with pytest.raises(smoke.Broken, match=wrong):
            smoke.check_operators("http", "operator", 2)


@pytest.fixture(params=["http", "https"])
async def serving(request, monkeypatch, tmp_path, unused_tcp_port):
    """Scheme and metrics of an operator that serves on this machine."""
    metrics = Metrics()
    server = Server(metrics, {}, lambda: [], lambda: 0.0)
    context = Certificate(made(tmp_path)).context if request.param == "https" else None
    monkeypatch.setattr(smoke, "METRICS_PORT", unused_tcp_port)
    await server.start("127.0.0.1", unused_tcp_port, context)
    yield request.param, metrics
    await server.stop()


async def test_the_operators_own_metrics_are_understood(serving):
    scheme, metrics = serving
    assert smoke.addresses("127.0.0.1") == ["127.0.0.1"]
    metrics.leader.set(1)
    with pytest.raises(smoke.Broken, match="has not listed heterotpjobs"):
        await asyncio.to_thread(smoke.check_operators, scheme, "127.0.0.1", 1)
    metrics.api_requests.labels("list", JOBS.plural, "200").inc()
    await asyncio.to_thread(smoke.check_operators, scheme, "127.0.0.1", 1)
    metrics.leader.set(0)
    with pytest.raises(smoke.Broken, match="1 operators are ready, 0 lead"):
        await asyncio.to_thread(smoke.check_operators, scheme, "127.0.0.1", 1)


def test_operators_that_do_not_answer_are_named(unused_tcp_port, monkeypatch):
    monkeypatch.setattr(smoke, "METRICS_PORT", unused_tcp_port)
    with pytest.raises(smoke.Broken, match=f"http://127.0.0.1:{unused_tcp_port} does not answer"):
        smoke.metrics("http", "127.0.0.1")

    def unknown(*_, **__):
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(smoke.socket, "getaddrinfo", unknown)
    with pytest.raises(smoke.Broken, match=r"operator\.system\.svc has no address, so no operator is ready"):
        smoke.addresses("operator.system.svc")


@pytest.fixture
def clock(monkeypatch):
    """A clock that advances with each pause."""
    now = [100.0]
    monkeypatch.setattr(smoke.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(smoke.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


def test_a_check_is_repeated_until_it_passes(clock):
    tries = []

    def third_time(host):
        tries.append(host)
        if len(tries) < 3:
            raise smoke.Broken("not yet")

    smoke.eventually(clock[0] + 60, third_time, "operator")
    assert tries == ["operator"] * 3


def test_a_check_that_never_passes_ends_with_what_is_wrong(clock):
    def never():
        raise smoke.Broken("never")

    deadline = clock[0] + 60
    with pytest.raises(smoke.Broken, match="never"):
        smoke.eventually(deadline, never)
    assert deadline < clock[0] < deadline + 10


@pytest.mark.parametrize(("slow", "code", "text"), [(0, 0, "ok: every operator"), (60, 1, "failed: none leads")])
def test_both_checks_share_one_patience(clock, monkeypatch, tmp_path, capsys, slow, code, text):
    """The first check is slow; a leader appears after two thirds of the total patience."""
    begun = clock[0]

    def kinds(*_):
        clock[0] += slow

    def operators(*_):
        clock[0] += 10 + slow
        if clock[0] < begun + 80 or slow:
            raise smoke.Broken("none leads")

    monkeypatch.setattr(smoke, "check_kinds", kinds)
    monkeypatch.setattr(smoke, "check_operators", operators)
    monkeypatch.setattr(smoke, "ACCOUNT", tmp_path)
    monkeypatch.setattr(smoke.ssl, "create_default_context", lambda cafile: None)
    (tmp_path / "token").write_text("t")
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    assert smoke.main() == code
    assert text in "".join(capsys.readouterr())
    assert clock[0] - begun < smoke.PATIENCE_SECONDS + slow + 11
