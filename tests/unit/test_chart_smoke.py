"""The pod of `helm test`: what it runs, with which rights, and what it finds wrong."""

import asyncio
import importlib.util
import urllib.error

import pytest
from heterotp_operator.metrics import Metrics
from heterotp_operator.server import Server
from rendered_chart import CHART, installed, of_kind, one, render

SPEC = importlib.util.spec_from_file_location("smoke", CHART / "files" / "smoke.py")
smoke = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(smoke)


@pytest.fixture(scope="module")
def hooks():
    """What `helm test` makes."""
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
        "REPLICAS": "2",
    }


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
    """Let the API server answer so, one after the other."""
    said = iter(codes)
    monkeypatch.setattr(smoke, "dry_run", lambda *_: next(said))


@pytest.mark.parametrize(
    ("codes", "wrong"),
    [
        ([(404, "the server could not find the requested resource")], "does not take a HeteroTPJob: 404"),
        ([(403, "tester may not")], "403 tester may not"),
        ([(201, ""), (201, "")], "takes a HeteroTPJob of 3 ranks in 2 pods"),
        ([(201, ""), (422, "another field")], "the CRDs are old"),
    ],
    ids=["no CRDs", "no right", "no rules", "another rule"],
)
def test_kinds_that_are_not_right_are_named(monkeypatch, codes, wrong):
    answers(monkeypatch, *codes)
    with pytest.raises(smoke.Broken, match=wrong):
        smoke.check_kinds("https://server", "system", "token", None)


def test_kinds_that_are_right_pass(monkeypatch):
    answers(monkeypatch, (201, ""), (422, "spec.tensorParallelDegree: must be the sum"))
    smoke.check_kinds("https://server", "system", "token", None)


def test_a_server_that_does_not_answer_is_named(monkeypatch):
    def refuse(*_, **__):
        raise urllib.error.URLError("connection refused")

    monkeypatch.setattr(smoke.urllib.request, "urlopen", refuse)
    with pytest.raises(smoke.Broken, match="https://server does not answer"):
        smoke.dry_run("https://server", "system", {}, "token", None)


@pytest.mark.parametrize(
    ("leading", "passes"), [([0, 1], True), ([0, 0], False), ([1, 1], False), ([1], False), ([], False)]
)
def test_exactly_one_of_all_replicas_leads(monkeypatch, leading, passes):
    monkeypatch.setattr(smoke, "addresses", lambda host: range(len(leading)))
    monkeypatch.setattr(smoke, "leader", leading.__getitem__)
    if passes:
        smoke.check_leader("operator", 2)
    else:
        with pytest.raises(smoke.Broken, match="wanted: 2, 1"):
            smoke.check_leader("operator", 2)


@pytest.mark.parametrize("value", [0, 1])
async def test_the_operators_own_metrics_are_understood(monkeypatch, unused_tcp_port, value):
    metrics = Metrics()
    metrics.leader.set(value)
    server = Server(metrics, {}, lambda: [], lambda: 0.0)
    monkeypatch.setattr(smoke, "METRICS_PORT", unused_tcp_port)
    await server.start("127.0.0.1", unused_tcp_port)
    try:
        assert smoke.addresses("127.0.0.1") == ["127.0.0.1"]
        assert await asyncio.to_thread(smoke.leader, "127.0.0.1") == value
    finally:
        await server.stop()


def test_a_check_is_repeated_until_it_passes(monkeypatch):
    now = iter(range(0, 1000, 10))
    monkeypatch.setattr(smoke.time, "monotonic", lambda: next(now))
    monkeypatch.setattr(smoke.time, "sleep", lambda seconds: None)
    tries = []

    def third_time(host):
        tries.append(host)
        if len(tries) < 3:
            raise OSError("not yet")

    smoke.eventually(third_time, "operator")
    assert tries == ["operator"] * 3
    with pytest.raises(smoke.Broken, match="operator: never"):
        smoke.eventually(lambda host: (_ for _ in ()).throw(OSError("never")), "operator")
