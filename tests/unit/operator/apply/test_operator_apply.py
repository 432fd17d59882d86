"""apply() against a recording client: the order of calls, batches, attempts, statuses, and what refusals end."""

import asyncio

import pytest
from heterotp_operator.apply import MOST_AT_ONCE, MOST_BESIDE_OTHERS, SMALL_BULK, Applier, batches
from heterotp_operator.cluster import (
    PODGROUPS,
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
    DeletePod,
    DryRunPod,
)
from heterotp_operator.reconcile.observed import Refusal
from support.recording_client import JOB, Client, child, create_pod, network_policy


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
    actions = (*before, *pods, *deletes)
    found = [[type(action) for action in batch] for batch in batches(actions, lambda: MOST_AT_ONCE)]
    assert [len(batch) for batch in found] == [1, 1, 1, 2, 4, 8, 16, 9, 1, 1]
    assert [each for batch in found for each in batch] == [*map(type, before), *[CreatePod] * 40, *[DeletePod] * 2]


@pytest.mark.parametrize(
    ("count", "others", "most"),
    [(65, True, MOST_BESIDE_OTHERS), (65, False, MOST_AT_ONCE), (SMALL_BULK, True, MOST_AT_ONCE)],
    ids=["a large gang beside others", "a large gang alone", "a small gang beside others"],
)
async def test_a_large_gang_gives_way_to_jobs_of_other_namespaces(stores, monkeypatch, count, others, most):
    pauses, sleep = [], asyncio.sleep

    async def pause(seconds):
        pauses.append(seconds)
        await sleep(0)

    client = Slow()
    monkeypatch.setattr("heterotp_operator.apply.asyncio.sleep", pause)
    applier = Applier(client, stores, JOB, beside_others=lambda: others)
    assert await applier.run(tuple(create_pod(child("Pod", f"p{number}")) for number in range(count)))
    assert (client.most, len(client.calls)) == (most, count)
    waited = [seconds for seconds in pauses if seconds]
    assert bool(waited) == (most == MOST_BESIDE_OTHERS)


def test_batches_shrink_when_others_come():
    most = iter([MOST_AT_ONCE] * 4)
    pods = tuple(create_pod(child("Pod", f"p{number}")) for number in range(20))
    assert [len(batch) for batch in batches(pods, lambda: next(most, 2))] == [1, 2, 4, 8, 2, 2, 1]


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
    assert {name: body["status"][name] for name in ("attempt", "restarts")} == {"attempt": 2, "restarts": 1}
    assert stores.jobs.get(("ns", "j"))["status"]["attempt"] == 2


@pytest.mark.parametrize(("live", "phase"), [({}, {"phase": "Pending"}), ({"phase": "Restarting"}, {})])
async def test_a_job_without_any_status_gets_its_first_phase_with_its_attempt(applier, client, live, phase):
    applier.job = {**applier.job, "status": live}
    await applier.run((BumpAttempt(attempt=1, restarts=0, resource_version="10"),))
    assert client.calls[0][-1]["status"] == {"attempt": 1, "restarts": 0} | phase


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
