"""The stores keep trimmed records, never go back in time, and know which pods belong to which job."""

import json
import tracemalloc

import pytest
from heterotp_api import names
from heterotp_operator.reconcile.objects import REFUSED
from heterotp_operator.store import MOST_OWNERS, Store, Stores, controller_of, trim_child, trim_job, trim_pod
from support import hoards
from support.hoards import gated_pod, large_job, refused_job
from support.reconcile_world import injection


def pod(name="p", version=1, uid=None, job="j", **extra):
    metadata = {"namespace": "ns", "name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    metadata["labels"] = {names.LABEL_JOB: job} if job else {}
    return {"metadata": metadata, "spec": extra.get("spec", {}), "status": extra.get("status", {"phase": "Pending"})}


@pytest.fixture
def store():
    return Store(trim_pod)


def test_new_then_changed_then_same(store):
    assert store.upsert(pod(version=1))
    assert store.upsert(pod(version=2, status={"phase": "Running"}))
    assert not store.upsert(pod(version=3, status={"phase": "Running"})), "only the version moved"
    assert store.get(("ns", "p"))["metadata"]["resourceVersion"] == "3"


def test_an_older_version_is_ignored(store):
    store.upsert(pod(version=5, status={"phase": "Running"}))
    assert not store.upsert(pod(version=4, status={"phase": "Pending"}))
    assert store.get(("ns", "p"))["status"]["phase"] == "Running"


def test_a_new_object_of_the_same_name_replaces_the_old_one(store):
    store.upsert(pod(version=5, uid="old"))
    assert store.upsert(pod(version=6, uid="new"))
    assert store.get(("ns", "p"))["metadata"]["uid"] == "new"


def test_a_stale_list_does_not_restore_a_deleted_object(store):
    store.upsert(pod(version=1))
    assert store.drop(pod(version=2))
    assert not store.upsert(pod(version=1))
    assert store.get(("ns", "p")) is None
    assert not store.drop(pod(version=2)), "a second drop changes nothing"


def test_an_object_that_gets_its_label_back_is_stored_again(store):
    store.upsert(pod(version=4))
    store.drop(pod(version=6))
    assert not store.upsert(pod(version=5))
    assert store.upsert(pod(version=6))  # read from the API server, without the label


def test_dropping_the_old_object_leaves_its_successor(store):
    store.upsert(pod(version=6, uid="new"))
    assert not store.drop(pod(version=5, uid="old"))
    assert store.get(("ns", "p"))["metadata"]["uid"] == "new"


def test_pods_of_a_job_by_label_in_order(store):
    for name, job in (("b", "j"), ("a", "j"), ("c", "other"), ("d", None)):
        store.upsert(pod(name, job=job))
    assert [record["metadata"]["name"] for record in store.of_job(("ns", "j"))] == ["a", "b"]
    store.upsert(pod("a", version=2, job="other"))
    store.drop(pod("b"))
    assert store.of_job(("ns", "j")) == []
    assert [record["metadata"]["name"] for record in store.of_job(("ns", "other"))] == ["a", "c"]


def test_vanished_are_the_unlisted_that_are_not_newer_than_the_list(store):
    for name, version in (("listed", 1), ("vanished", 2), ("newer", 9)):
        store.upsert(pod(name, version))
    gone = store.vanished({"uid-listed"}, version=5, namespace=None)
    assert [record["metadata"]["name"] for record in gone] == ["vanished"]
    assert store.vanished({"uid-listed"}, 5, "elsewhere") == []


def test_clear_is_not_a_deletion(store):
    store.upsert(pod())
    store.clear()
    assert len(store) == 0
    assert store.of_job(("ns", "j")) == []
    assert store.upsert(pod())


def test_a_pod_record_keeps_only_fields_that_decisions_read():
    body, ours = pod(), {names.ANNOTATION_SECRET: "key", names.ANNOTATION_CONTROL: "7"}
    body["metadata"] |= {"managedFields": [1], "annotations": {"a": "b" * 200_000, **ours}, "generateName": "x"}
    body["metadata"]["labels"] |= {f"mine-{number}": "1" for number in range(1000)}
    body["spec"] = {"nodeName": "n", "containers": [{"name": "trainer"}], "schedulingGates": [{"name": "g"}]}
    body["status"] = {
        "phase": "Failed",
        "podIP": "10.0.0.1",
        "qosClass": "Burstable",
        "conditions": [{"type": "Ready", "status": "False", "reason": "x", "lastProbeTime": None}],
        "containerStatuses": [
            {
                "name": "trainer",
                "ready": False,
                "image": "i",
                "restartCount": 0,
                "state": {"terminated": {"exitCode": 1}},
            }
        ],
    }
    assert trim_pod(body) == {
        "metadata": {**pod()["metadata"], "annotations": ours},
        "spec": {"nodeName": "n"},
        "status": {
            "phase": "Failed",
            "podIP": "10.0.0.1",
            "conditions": [{"type": "Ready", "status": "False", "reason": "x"}],
            "containerStatuses": [
                {"name": "trainer", "ready": False, "restartCount": 0, "state": {"terminated": {"exitCode": 1}}}
            ],
        },
    }


def test_job_and_children_lose_managed_fields_and_annotations():
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "1"}
    metadata = {"name": "j", "namespace": "ns", "managedFields": [1], "annotations": annotations}
    job = trim_job({"metadata": {**metadata, "labels": {"a": "b"}}, "spec": {"x": 1}})
    assert job["metadata"] == {"name": "j", "namespace": "ns", "labels": {"a": "b"}}
    assert (job["kind"], job["spec"], job["status"]) == ("HeteroTPJob", {"x": 1}, {})
    child = trim_child({"metadata": metadata, "spec": {"k": "v"}, "status": {"x": 1}})
    assert child == {"metadata": {"name": "j", "namespace": "ns"}, "spec": {"k": "v"}}


def configmap(name="j-control", text="{}", job="j", **owner):
    reference = {"apiVersion": "v", "kind": "HeteroTPJob", "name": job, "uid": "u", "controller": True, **owner}
    metadata = {"name": name, "namespace": "ns", "ownerReferences": [reference]}
    return {"metadata": metadata, "data": {names.CONTROL_FILE: text, "other": "x" * 500_000}}


def test_a_configmap_keeps_the_control_document_of_its_job_alone():
    assert trim_child(configmap())["data"] == {names.CONTROL_FILE: "{}"}
    for foreign in (configmap("mine"), configmap(kind="Deployment"), configmap(controller=False)):
        assert "data" not in trim_child(foreign)


def test_many_owners_are_not_kept_and_the_controller_is():
    body = configmap()
    body["metadata"]["ownerReferences"] = [
        *({"kind": "HeteroTPJob", "name": f"j{number}", "uid": "u"} for number in range(1000)),
        *body["metadata"]["ownerReferences"],
    ]
    kept = trim_child(body)["metadata"]["ownerReferences"]
    assert len(kept) == MOST_OWNERS and controller_of({"metadata": {"ownerReferences": kept}})["name"] == "j"


def of_the_api_server(body):
    """Return a new object as the API server holds it."""
    metadata = {**body["metadata"], "namespace": "ns", "uid": f"uid-{body['metadata']['name']}"}
    return {**body, "metadata": {**metadata, "resourceVersion": "1"}}


def spoilt_control(number):
    body = configmap(f"j{number}-control", "x" * 900_000, job=f"j{number}")
    return {**body, "metadata": {**body["metadata"], "uid": f"u{number}"}}


def long_injection(number):
    ranks = list(range(16_000))
    return injection(f"i{number}", targets={"ranks": ranks})


@pytest.mark.parametrize(
    ("kind", "make", "most"),
    [
        ("jobs", lambda number: large_job(f"j{number}"), 1_300_000),
        ("jobs", lambda number: refused_job(f"j{number}"), 4_000),
        ("configmaps", lambda number: hoards.configmap(f"c{number}"), 2_000),
        ("configmaps", spoilt_control, 4_000),
        ("pods", lambda number: gated_pod(f"p{number}"), 10_000),
        ("injections", long_injection, 120_000),
    ],
    ids=["valid jobs", "refused jobs", "foreign ConfigMaps", "spoilt ConfigMaps", "pods", "injections"],
)
def test_what_a_tenant_may_store_takes_bounded_memory(kind, make, most):
    """most: bytes that one object may take of the operator's memory."""
    store = getattr(Stores(), kind)
    texts = [json.dumps(of_the_api_server(make(number))) for number in range(4)]
    store.upsert(json.loads(texts[0]))
    tracemalloc.start()
    try:
        for text in texts[1:]:
            assert store.upsert(json.loads(text))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(store) == 4 and taken / 3 < most


def test_the_large_job_is_valid():
    assert REFUSED not in trim_job(of_the_api_server(large_job("j")))


def test_equal_strings_are_shared():
    phases = ["".join(["Run", "ning"]) for _ in range(2)]
    first, second = (trim_pod(pod(status={"phase": phase})) for phase in phases)
    assert first["status"]["phase"] is second["status"]["phase"]


def test_stores_of_two_kinds_are_independent():
    stores = Stores()
    stores.pods.upsert(pod())
    assert (len(stores.pods), len(stores.services), list(stores.pods)) == (1, 0, [("ns", "p")])


def test_a_namespace_holds_its_own_newest_records_only(store):
    store.upsert(pod("p", version=1))
    other = pod("p", version=1, uid="other")
    other["metadata"]["namespace"] = "elsewhere"
    store.upsert(other)
    store.upsert(pod("p", version=2, status={"phase": "Running"}))
    store.upsert(pod("q", version=1))
    assert [(r["metadata"]["name"], r["status"].get("phase")) for r in store.in_namespace("ns")] == [
        ("p", "Running"),
        ("q", "Pending"),
    ]
    store.drop(pod("p", version=3))
    assert [r["metadata"]["name"] for r in store.in_namespace("ns")] == ["q"]
    store.clear()
    assert store.in_namespace("ns") == store.in_namespace("elsewhere") == ()


def test_equal_owners_and_conditions_of_pods_are_one_record_and_unlike_ones_are_not():
    def trimmed(name, status, message=""):
        condition = {
            "type": "Ready",
            "status": status,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "message": message,
        }
        made = pod(name, status={"phase": "Running", "conditions": [condition]})
        made["metadata"]["ownerReferences"] = [{"kind": "HeteroTPJob", "name": "j", "uid": "u", "controller": True}]
        return trim_pod(made)

    first, second, other = trimmed("a", "True"), trimmed("b", "True"), trimmed("c", "False")
    assert first["metadata"]["ownerReferences"][0] is second["metadata"]["ownerReferences"][0]
    assert first["status"]["conditions"][0] is second["status"]["conditions"][0]
    assert other["status"]["conditions"][0] == first["status"]["conditions"][0] | {"status": "False"}
    long = [trimmed(name, "False", "x" * 1000)["status"]["conditions"][0] for name in "de"]
    assert long[0] == long[1] and long[0] is not long[1], "what is long is not kept beyond its pod"


def test_the_pods_of_rank_0_are_found_without_a_look_at_all():
    pods = Stores().pods

    def ranked(name, rank, version, job="j"):
        body = pod(name, version, job=job)
        body["metadata"]["labels"][names.LABEL_FIRST_RANK] = rank
        return body

    def leaders(job="j"):
        return {each["metadata"]["name"] for each in pods.leaders(("ns", job))}

    for version, (name, rank) in enumerate([("a", "0"), ("b", "1"), ("c", "0")], 1):
        pods.upsert(ranked(name, rank, version))
    assert leaders() == {"a", "c"}
    pods.upsert(ranked("a", "0", 10, job="other"))
    pods.upsert(ranked("b", "0", 10))
    assert (leaders(), leaders("other")) == ({"b", "c"}, {"a"})
    pods.upsert(ranked("c", "2", 10))
    pods.drop(ranked("b", "0", 11))
    assert leaders() == set()
    pods.clear()
    assert leaders("other") == set()
