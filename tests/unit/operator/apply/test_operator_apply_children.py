"""apply() against a recording client: children by owner, uid and version, and what the stores learn of them."""

import pytest
from heterotp_api import names
from heterotp_operator.cluster import (
    JOBS,
    NETWORK_POLICIES,
    PODGROUPS,
    PODS,
    Conflict,
    NameTaken,
)
from heterotp_operator.reconcile.actions import (
    ApplyConfigMap,
    ApplyNetworkPolicy,
    ApplyPodGroup,
    CreateService,
    DeleteJob,
    DeleteNetworkPolicy,
    DeletePod,
    TouchPod,
)
from support.recording_client import child, create_pod, network_policy


async def test_a_network_policy_is_made_then_replaced_as_a_whole_then_deleted_by_its_uid(applier, client, stores):
    await applier.run((ApplyNetworkPolicy(network_policy()),))
    known = stores.networkpolicies.get(("ns", "j-gang"))
    await applier.run((ApplyNetworkPolicy(network_policy(ingress=[])),))
    await applier.run((DeleteNetworkPolicy("j-gang", known["metadata"]["uid"]),))
    assert [call[:2] for call in client.calls] == [("create", "j-gang"), ("replace", "j-gang"), ("delete", "j-gang")]
    assert client.calls[1][2]["metadata"]["resourceVersion"] == known["metadata"]["resourceVersion"]
    assert client.calls[2][2:4] == (NETWORK_POLICIES, known["metadata"]["uid"])
    assert stores.networkpolicies.get(("ns", "j-gang")) is None and applier.changed


async def test_a_known_child_is_applied_by_its_uid_and_a_foreign_one_never(applier, client, stores):
    stores.configmaps.upsert(client._stored(child("ConfigMap", "c")))
    await applier.run((ApplyConfigMap(child("ConfigMap", "c")),))
    verb, _, manager, _, body = client.calls[0]
    assert (verb, manager, body["metadata"]["uid"]) == ("apply", "heterotp-operator", "uid-c")
    stores.configmaps.upsert(client._stored(child("ConfigMap", "c", owner="another", owner_name="k")))
    client.errors["create", "c"] = NameTaken(409, "AlreadyExists", "not ours")
    assert not await applier.run((ApplyConfigMap(child("ConfigMap", "c")),))
    assert [call[:2] for call in client.calls] == [("apply", "c"), ("create", "c")]


async def test_a_child_that_an_earlier_job_of_the_name_left_behind_is_taken_over(applier, client, stores):
    """A garbage collector that misses the end of a job, because another one of its name is there, never removes it."""
    left, service = child("ConfigMap", "c", owner="before"), child("Service", "s", owner="before")
    stores.configmaps.upsert(client._stored(left))
    stores.services.upsert(client._stored(service))
    assert await applier.run((ApplyConfigMap(child("ConfigMap", "c")), CreateService(child("Service", "s"))))
    assert [call[0] for call in client.calls] == ["merge", "apply", "replace"]
    patched = client.calls[0][3]["metadata"]
    assert (patched["uid"], patched["resourceVersion"]) == ("uid-c", "101")
    for store, key in ((stores.configmaps, ("ns", "c")), (stores.services, ("ns", "s"))):
        assert [each["uid"] for each in store.get(key)["metadata"]["ownerReferences"]] == ["job-uid"]


async def test_a_child_of_an_earlier_job_that_is_being_deleted_is_waited_for(applier, client, stores):
    left = client._stored(child("ConfigMap", "c", owner="before"))
    left["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    stores.configmaps.upsert(left)
    client.errors["create", "c"] = Conflict(409, "AlreadyExists", "there")
    with pytest.raises(Conflict):
        await applier.run((ApplyConfigMap(child("ConfigMap", "c")),))


async def test_deletes_are_bound_to_the_uid(applier, client, stores):
    stores.pods.upsert({**child("Pod", "p"), "metadata": child("Pod", "p")["metadata"] | {"uid": "u"}})
    await applier.run((DeletePod("p", "u", grace_seconds=0),))
    assert client.calls == [("delete", "p", PODS, "u", None, 0)]
    assert stores.pods.get(("ns", "p")) is None, "nothing is left of it"


async def test_a_terminating_pod_stays_known_until_its_event(applier, client, stores):
    client.terminating = True
    stores.pods.upsert({**child("Pod", "p"), "metadata": child("Pod", "p")["metadata"] | {"uid": "u"}})
    await applier.run((DeletePod("p", "u"),))
    assert stores.pods.get(("ns", "p"))["metadata"]["deletionTimestamp"]


async def test_the_answer_to_a_delete_does_not_restore_a_dropped_object(applier, client, stores):
    pod = {**child("Pod", "p"), "metadata": child("Pod", "p")["metadata"] | {"uid": "u"}}
    stores.pods.upsert(pod)
    client.terminating = True
    client.meanwhile = lambda: stores.pods.drop({"metadata": pod["metadata"] | {"resourceVersion": "999"}})
    await applier.run((DeletePod("p", "u"),))
    assert stores.pods.get(("ns", "p")) is None


async def test_a_pod_is_patched_only_at_the_seen_version(applier, client, stores):
    await applier.run((TouchPod("p", "u", 7),))
    annotations = {names.ANNOTATION_CONTROL: "7"}
    assert client.calls == [("merge", "p", PODS, {"metadata": {"uid": "u", "annotations": annotations}})]
    assert stores.pods.get(("ns", "p"))["metadata"]["annotations"] == annotations


async def test_a_service_is_applied_whole_and_keeps_fields_of_others(applier, client, stores):
    live = client._stored(child("Service", "s"))
    live["metadata"]["labels"] = {"theirs": "1", names.LABEL_JOB: "wrong"}
    live["metadata"]["annotations"] = {"mesh": "on"}
    stores.services.upsert({**live, "spec": {"selector": {"theirs": "1"}}})
    await applier.run((CreateService({**child("Service", "s"), "spec": {"selector": {"ours": "1"}}}),))
    verb, _, body = client.calls[0]
    assert (verb, body["spec"]) == ("replace", {"selector": {"ours": "1"}})
    assert body["metadata"]["labels"] == {"theirs": "1", names.LABEL_JOB: "j", names.LABEL_GROUP: "a"}
    assert body["metadata"]["annotations"] == {"mesh": "on"}
    assert body["metadata"]["resourceVersion"] == live["metadata"]["resourceVersion"]


async def test_a_service_of_another_owner_by_now_is_not_replaced(applier, client, stores):
    stores.services.upsert(client._stored(child("Service", "s")))
    client._stored(child("Service", "s", owner="another", owner_name="k"))  # its watch event is still to come
    with pytest.raises(Conflict):
        await applier.run((CreateService({**child("Service", "s"), "spec": {}}),))
    assert client.calls == []


async def test_a_podgroup_is_created_and_stored(applier, stores):
    body = {**child("PodGroup", "j"), "apiVersion": PODGROUPS["volcano"].api_version}
    await applier.run((ApplyPodGroup(body),))
    assert stores.podgroups.get(("ns", "j")) is not None


async def test_a_job_is_deleted_only_at_the_seen_version(applier, client):
    await applier.run((DeleteJob(uid="job-uid", resource_version="10"),))
    assert client.calls == [("delete", "j", JOBS, "job-uid", "10", None)]


async def test_a_pod_whose_deletion_is_refused_stays_known(applier, client, stores):
    pod = client._stored(child("Pod", "p"))
    stores.pods.upsert(pod)
    client.errors["delete", "p"] = Conflict(409, "Conflict", "another writer was faster")
    with pytest.raises(Conflict):
        await applier.run((DeletePod("p", pod["metadata"]["uid"]), create_pod(child("Pod", "q"))))
    assert stores.pods.get(("ns", "p")) is not None
    assert [call[0] for call in client.calls] == ["delete"]
