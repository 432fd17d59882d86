"""apply() against a recording client: the order of calls, what they are guarded by, and what the stores learn."""

import asyncio

import pytest
from heterotp_api import names
from heterotp_operator.apply import MOST_AT_ONCE, Applier, batches
from heterotp_operator.cluster import (
    JOBS,
    NETWORK_POLICIES,
    PODGROUPS,
    PODS,
    ApiError,
    Conflict,
    NameTaken,
    NotFound,
    Refused,
)
from heterotp_operator.reconcile.actions import (
    ApplyConfigMap,
    ApplyNetworkPolicy,
    ApplyPodGroup,
    BumpAttempt,
    CreatePod,
    CreateService,
    DeleteJob,
    DeleteNetworkPolicy,
    DeletePod,
    DryRunPod,
    TouchPod,
)
from heterotp_operator.reconcile.observed import Refusal
from heterotp_operator.store import Stores

JOB = {
    "apiVersion": "heterotp.io/v1alpha1",
    "kind": "HeteroTPJob",
    "metadata": {"name": "j", "namespace": "ns", "uid": "job-uid", "resourceVersion": "10"},
    "spec": {"runPolicy": {"gang": {"provider": "volcano"}}},
    "status": {},
}


class Client:
    """Records calls; answers with what it was sent, as an API server would, or raises what the test planned."""

    def __init__(self):
        self.calls, self.errors, self.version, self.terminating = [], {}, 100, False
        self.live = {}  # (kind, name) -> what the API server holds of a child
        self.meanwhile = lambda: None  # what happens before a delete is answered

    def _record(self, verb, name, *details):
        self.calls.append((verb, name, *details))
        if (verb, name) in self.errors:
            raise self.errors.pop((verb, name))

    def _stored(self, body):
        self.version += 1
        metadata = {"uid": f"uid-{body['metadata']['name']}", **body["metadata"], "resourceVersion": str(self.version)}
        self.live[body["kind"], metadata["name"]] = stored = {**body, "metadata": metadata}
        return stored

    async def create(self, body, dry_run=False):
        self._record("dry-run" if dry_run else "create", body["metadata"]["name"])
        return self._stored(body)

    async def create_owned(self, body):
        self._record("create", body["metadata"]["name"])
        return self._stored(body)

    async def apply(self, body, manager, subresource=""):
        self._record("apply", body["metadata"]["name"], manager, subresource, body)
        return self._stored({**JOB, **body} if body["kind"] == "HeteroTPJob" else body)

    async def get(self, resource, namespace, name):
        return self.live[resource.kind, name]

    async def replace(self, body):
        self._record("replace", body["metadata"]["name"], body)
        return self._stored(body)

    async def merge(self, resource, namespace, name, patch):
        self._record("merge", name, resource, patch)
        return self._stored(
            {"kind": resource.kind, **patch, "metadata": {"namespace": namespace, "name": name, **patch["metadata"]}}
        )

    async def delete(self, resource, namespace, name, uid, resource_version=None, grace_seconds=None):
        self._record("delete", name, resource, uid, resource_version, grace_seconds)
        self.meanwhile()
        if not self.terminating:
            return None
        metadata = {"namespace": namespace, "name": name, "uid": uid, "deletionTimestamp": "2026-01-01T00:00:00Z"}
        return {"kind": resource.kind, "metadata": metadata | {"resourceVersion": "999"}}


def child(kind, name, group="a", owner="job-uid", owner_name="j"):
    reference = {"kind": "HeteroTPJob", "name": owner_name, "uid": owner, "controller": True}
    labels = {names.LABEL_JOB: "j", names.LABEL_GROUP: group}
    metadata = {"name": name, "namespace": "ns", "labels": labels, "ownerReferences": [reference]}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}


def create_pod(body):
    return CreatePod(body["metadata"]["labels"][names.LABEL_GROUP], lambda: body)


@pytest.fixture
def client():
    return Client()


@pytest.fixture
def stores():
    stores = Stores()
    stores.jobs.upsert(JOB)
    return stores


@pytest.fixture
def applier(client, stores):
    return Applier(client, stores, JOB)


async def test_actions_run_in_their_order(applier, client):
    actions = (
        BumpAttempt(attempt=1, restarts=0, resource_version="10"),
        CreateService(child("Service", "j-gang")),
        ApplyConfigMap(child("ConfigMap", "j-control")),
        create_pod(child("Pod", "j-a-0-1")),
        DeletePod("j-a-0-0", "old"),
    )
    assert await applier.run(actions)
    assert [call[:2] for call in client.calls] == [
        ("apply", "j"),
        ("create", "j-gang"),
        ("create", "j-control"),
        ("create", "j-a-0-1"),
        ("delete", "j-a-0-0"),
    ]


class Slow(Client):
    """Answers creates later, and counts how many are under way."""

    def __init__(self):
        super().__init__()
        self.under_way, self.most = 0, 0

    async def create_owned(self, body):
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        return await super().create_owned(body)


async def test_pods_of_a_large_gang_are_made_in_parallel_and_bounded(stores):
    client, steps = Slow(), []
    applier = Applier(client, stores, JOB, progress=lambda: steps.append(1))
    assert await applier.run(tuple(create_pod(child("Pod", f"p{number}")) for number in range(100)))
    assert (client.most, len(client.calls), len(steps)) == (MOST_AT_ONCE, 100, 100)


def test_batches_grow_from_one_and_keep_the_order_of_kinds():
    pods = tuple(create_pod(child("Pod", f"p{number}")) for number in range(40))
    before = (BumpAttempt(1, 0, "1"), CreateService(child("Service", "s")))
    deletes = (DeletePod("p", "u"), DeletePod("q", "v"))
    found = [[type(action) for action in batch] for batch in batches((*before, *pods, *deletes))]
    assert [len(batch) for batch in found] == [1, 1, 1, 2, 4, 8, 16, 9, 1, 1]
    assert [each for batch in found for each in batch] == [*map(type, before), *[CreatePod] * 40, *[DeletePod] * 2]


async def test_a_quota_that_is_exhausted_is_asked_once(applier, client):
    client.errors = {("create", f"p{number}"): Refused(403, "Forbidden", "exceeded quota") for number in range(100)}
    assert not await applier.run(tuple(create_pod(child("Pod", f"p{number}")) for number in range(100)))
    assert len(client.calls) == 1


async def test_an_error_in_a_batch_keeps_what_the_others_made(applier, client, stores):
    client.errors["create", "p1"] = ApiError(500, "InternalError", "no")
    with pytest.raises(ApiError):
        await applier.run(tuple(create_pod(child("Pod", f"p{number}")) for number in range(7)))
    assert [pod["metadata"]["name"] for pod in stores.pods.of_job(("ns", "j"))] == ["p0", "p2"]


async def test_answers_are_in_the_store_at_once(applier, stores):
    await applier.run((create_pod(child("Pod", "p")), CreateService(child("Service", "s"))))
    assert [pod["metadata"]["name"] for pod in stores.pods.of_job(("ns", "j"))] == ["p"]
    assert stores.services.get(("ns", "s")) is not None
    assert applier.changed


async def test_the_attempt_is_bumped_by_its_own_manager_and_only_over_the_version_seen(applier, client, stores):
    await applier.run((BumpAttempt(attempt=2, restarts=1, resource_version="10"),))
    _, _, manager, subresource, body = client.calls[0]
    assert (manager, subresource) == ("heterotp-attempt", "status")
    assert body["metadata"] == {"name": "j", "namespace": "ns", "uid": "job-uid", "resourceVersion": "10"}
    assert body["status"] == {"attempt": 2, "restarts": 1}
    assert stores.jobs.get(("ns", "j"))["status"]["attempt"] == 2


async def test_a_stale_attempt_write_stops_all_later_actions(applier, client):
    client.errors["apply", "j"] = Conflict(409, "Conflict", "stale")
    with pytest.raises(Conflict):
        await applier.run((BumpAttempt(2, 1, "9"), DeletePod("p", "u"), create_pod(child("Pod", "q"))))
    assert len(client.calls) == 1


async def test_status_never_contains_the_counters_and_names_the_uid(applier, client):
    await applier.write_status({"phase": "Running", "attempt": 3, "restarts": 2})
    _, _, manager, subresource, body = client.calls[0]
    assert (manager, subresource, body["status"]) == ("heterotp-status", "status", {"phase": "Running"})
    assert body["metadata"] == {"name": "j", "namespace": "ns", "uid": "job-uid"}


async def test_a_status_write_for_a_deleted_job_is_no_error(applier, client, stores):
    client.errors["apply", "j"] = NotFound(404, "NotFound", "j")
    await applier.write_status({"phase": "Running"})
    assert len(client.calls) == 1 and not applier.changed
    assert stores.jobs.get(("ns", "j"))["status"] == {}


@pytest.mark.parametrize("error", [Refused(403, "Forbidden", "exceeded quota"), Refused(422, "Invalid", "bad image")])
@pytest.mark.parametrize("action", [create_pod(child("Pod", "p")), DryRunPod("a", lambda: child("Pod", "p"))])
async def test_a_refused_pod_is_remembered_by_group_and_ends_the_round(applier, client, error, action):
    client.errors["create", "p"] = client.errors["dry-run", "p"] = error
    assert not await applier.run((action, create_pod(child("Pod", "q"))))
    assert applier.refusals == {"a": Refusal(error.code, error.reason, error.message)}
    assert len(client.calls) == 1


async def test_a_template_whose_pods_name_is_taken_is_valid(applier, client):
    client.errors["dry-run", "p"] = Conflict(409, "AlreadyExists", "p")
    assert await applier.run((DryRunPod("a", lambda: child("Pod", "p")),))


async def test_an_accepted_pod_clears_the_refusal(applier):
    applier.refusals["a"] = Refusal(403, "Forbidden", "exceeded quota")
    assert await applier.run((create_pod(child("Pod", "p")),))
    assert applier.refusals == {}


@pytest.mark.parametrize(
    ("action", "error"),
    [
        (CreateService(child("Service", "s")), Refused(403, "Forbidden", "exceeded quota")),
        (ApplyConfigMap(child("ConfigMap", "s")), NameTaken(409, "AlreadyExists", "not ours")),
        (
            ApplyPodGroup(child("PodGroup", "s") | {"apiVersion": PODGROUPS["volcano"].api_version}),
            NotFound(404, "NotFound", "no kind"),
        ),
    ],
    ids=["service", "configmap", "podgroup"],
)
async def test_a_refused_child_is_remembered_by_kind(applier, client, action, error):
    client.errors["create", "s"] = error
    assert not await applier.run((action, create_pod(child("Pod", "q"))))
    assert applier.refusals == {action.body["kind"]: Refusal(error.code, error.reason, error.message)}
    assert len(client.calls) == 1


def network_policy(owner="job-uid", **spec):
    body = child("NetworkPolicy", "j-gang", owner=owner) | {"apiVersion": NETWORK_POLICIES.api_version}
    return {**body, "spec": {"policyTypes": ["Ingress"], **spec}}


async def test_a_network_policy_is_made_then_replaced_as_a_whole_then_deleted_by_its_uid(applier, client, stores):
    await applier.run((ApplyNetworkPolicy(network_policy()),))
    known = stores.networkpolicies.get(("ns", "j-gang"))
    await applier.run((ApplyNetworkPolicy(network_policy(ingress=[])),))
    await applier.run((DeleteNetworkPolicy("j-gang", known["metadata"]["uid"]),))
    assert [call[:2] for call in client.calls] == [("create", "j-gang"), ("replace", "j-gang"), ("delete", "j-gang")]
    assert client.calls[1][2]["metadata"]["resourceVersion"] == known["metadata"]["resourceVersion"]
    assert client.calls[2][2:4] == (NETWORK_POLICIES, known["metadata"]["uid"])
    assert stores.networkpolicies.get(("ns", "j-gang")) is None and applier.changed


async def test_a_network_policy_that_is_refused_is_remembered_and_no_pod_is_made(applier, client):
    client.errors["create", "j-gang"] = Refused(403, "Forbidden", "no right")
    assert not await applier.run((ApplyNetworkPolicy(network_policy()), create_pod(child("Pod", "q"))))
    assert set(applier.refusals) == {"NetworkPolicy"} and len(client.calls) == 1


@pytest.mark.parametrize(
    ("action", "verb", "error"),
    [
        (create_pod(child("Pod", "s")), "create", NotFound(404, "NotFound", "namespaces")),
        (create_pod(child("Pod", "s")), "create", Conflict(409, "Conflict", "stale")),
        (DeletePod("s", "u"), "delete", Refused(403, "Forbidden", "no right")),
    ],
    ids=["namespace gone", "stale", "no right to delete"],
)
async def test_another_error_than_a_refusal_is_raised(applier, client, action, verb, error):
    client.errors[verb, "s"] = error
    with pytest.raises(type(error)):
        await applier.run((action,))
    assert applier.refusals == {}


async def test_an_error_keeps_the_actions_before_it(applier, client, stores):
    client.errors["create", "q"] = ApiError(500, "InternalError", "no")
    with pytest.raises(ApiError):
        await applier.run((create_pod(child("Pod", "p")), create_pod(child("Pod", "q"))))
    assert stores.pods.get(("ns", "p")) is not None


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
