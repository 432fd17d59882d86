"""Executes the actions of a decision in their order, and the one status write after them.

Pods are made and deleted in parallel, by batches that grow while all goes well, as Kubernetes' own controllers do it: a
quota that is exhausted is asked once, and a large gang does not wait for one call after the other. While jobs of other
namespaces need the operator, the batches of a large gang are small and its pauses long: the rest of the time is theirs.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol

from heterotp_api import names

from heterotp_operator.cluster import (
    JOBS,
    MANAGER,
    NETWORK_POLICIES,
    PODS,
    WORKLOADS,
    ApiError,
    Conflict,
    NameTaken,
    NotFound,
    Refused,
    Resource,
    of_namesake,
    resource_of,
    same_controller,
)
from heterotp_operator.queue import Key
from heterotp_operator.reconcile.actions import (
    Action,
    ApplyConfigMap,
    ApplyNetworkPolicy,
    ApplyPodGroup,
    BumpAttempt,
    CreatePod,
    CreateService,
    CreateWorkload,
    DeleteJob,
    DeleteNetworkPolicy,
    DeletePod,
    DeleteWorkload,
    DryRunPod,
    PatchWorkload,
    ReportWorkload,
    TouchPod,
)
from heterotp_operator.reconcile.observed import Refusal
from heterotp_operator.status_writer import write_counters, write_status
from heterotp_operator.store import Json, Store, Stores, key_of

KUEUE_MANAGER = "heterotp-kueue"
MOST_AT_ONCE = 16  # calls for one job: more would delay those for others by the limit of calls per second
SMALL_BULK = 64  # pods to make or to delete; more of them give way to jobs of other namespaces
MOST_BESIDE_OTHERS = 2  # calls for one job that gives way: each takes some 5 ms of the event loop
PAUSE_RATIO = 6.0  # the pause after a batch beside others, over the time of the batch: a seventh of the time is used
Refusals = dict[str, Refusal]
"""Children that the API server does not accept: worker group (of pods) or kind (of others) -> its answer."""


class Client(Protocol):
    """The calls to the API server that actions need."""

    async def create(self, body: Json, dry_run: bool = False) -> Json:
        """Create, or only check."""

    async def create_owned(self, body: Json) -> Json:
        """Create, or return the same controller's object. Raises Conflict."""

    async def apply(self, body: Json, manager: str, subresource: str = "") -> Json:
        """Server-side apply."""

    async def get(self, resource: Resource, namespace: str, name: str) -> Json:
        """Return one object. Raises NotFound."""

    async def replace(self, body: Json) -> Json:
        """Replace what has this resourceVersion."""

    async def merge(self, resource: Resource, namespace: str, name: str, patch: Json, subresource: str = "") -> Json:
        """Merge-patch."""

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        uid: str,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
    ) -> Json | None:
        """Delete exactly this uid."""


@dataclass
class Applier:
    """Executes actions for one job; every answer goes into the stores, so that the next look sees it."""

    client: Client
    stores: Stores
    job: Json
    refusals: Refusals = field(default_factory=dict)
    changed: bool = False  # an answer brought something new, which no watch event will bring again
    progress: Callable[[], None] = lambda: None  # called after every action
    beside_others: Callable[[], bool] = lambda: False  # whether jobs of other namespaces need the operator now

    @property
    def key(self) -> Key:
        """The job's key."""
        return key_of(self.job)

    async def run(self, actions: tuple[Action, ...]) -> bool:
        """Execute the actions in order; return False when the API server refused a child (kept in `refusals`).

        Raises ApiError for everything else that fails; what was done before stays done.
        """
        large = sum(map(_in_bulk, actions)) > SMALL_BULK
        gives_way = self.beside_others if large else lambda: False
        for batch in batches(actions, lambda: MOST_BESIDE_OTHERS if gives_way() else MOST_AT_ONCE):
            started = time.monotonic()
            answers = await asyncio.gather(*map(self._act, batch), return_exceptions=True)
            failures = [(action, error) for action, error in zip(batch, answers, strict=True) if error is not None]
            for action, error in failures:
                self._keep_refusal(action, error)
            if failures:
                return False
            if _in_bulk(batch[0]) and gives_way():
                await asyncio.sleep(PAUSE_RATIO * (time.monotonic() - started))
        self.refusals.clear()
        return True

    def _keep_refusal(self, action: Action, error: BaseException) -> None:
        """Keep that the API server refused a child; raise every other error."""
        subject = _subject(action)
        if subject == "Workload" and isinstance(error, ApiError) and type(error) is not Conflict:
            # Kueue's webhooks or CRDs are away, or refuse it: everything else of the job goes on
            self.refusals[subject] = Refusal(error.code, error.reason, error.message)
            return
        # only a gang scheduler's kind may be unknown here; any other 404 is a namespace on its way out
        known = isinstance(error, Refused | NameTaken) or (isinstance(error, NotFound) and subject == "PodGroup")
        if subject is None or not known:
            raise error
        assert isinstance(error, ApiError)
        self.refusals[subject] = Refusal(error.code, error.reason, error.message)

    def _take(self, store: Store, body: Json) -> None:
        self.changed |= store.upsert(body)

    async def _act(self, action: Action) -> None:
        steps: dict[type, Callable[[Any], Awaitable[None]]] = {
            CreatePod: self._create_pod,
            CreateService: self._create_service,
            ApplyConfigMap: self._apply_configmap,
            ApplyPodGroup: self._apply_podgroup,
            CreateWorkload: self._create_workload,
            PatchWorkload: self._patch_workload,
            ReportWorkload: self._report_workload,
            DeleteWorkload: self._delete_workload,
            ApplyNetworkPolicy: self._apply_network_policy,
            DeleteNetworkPolicy: self._delete_network_policy,
            BumpAttempt: self._bump,
            DryRunPod: self._dry_run,
            DeletePod: self._delete_pod,
            TouchPod: self._touch_pod,
            DeleteJob: self._delete_job,
        }
        await steps[type(action)](action)
        self.progress()

    async def _create_pod(self, action: CreatePod) -> None:
        self._take(self.stores.pods, await self.client.create_owned(action.body))

    async def _create_service(self, action: CreateService) -> None:
        await self._ensure(self.stores.services, action.body, self._replace)

    async def _apply_configmap(self, action: ApplyConfigMap) -> None:
        await self._ensure(self.stores.configmaps, action.body, self._patch)

    async def _apply_podgroup(self, action: ApplyPodGroup) -> None:
        await self._ensure(self.stores.podgroups, action.body, self._patch)

    async def _create_workload(self, action: CreateWorkload) -> None:
        self._take(self.stores.workloads, await self.client.create_owned(action.body))

    async def _patch_workload(self, action: PatchWorkload) -> None:
        name = names.workload_name(self.key[1])
        answer = await self.client.merge(WORKLOADS, self.key[0], name, action.patch, action.subresource)
        self._take(self.stores.workloads, answer)

    async def _report_workload(self, action: ReportWorkload) -> None:
        self._take(self.stores.workloads, await self.client.apply(action.body, KUEUE_MANAGER, "status"))

    async def _delete_workload(self, action: DeleteWorkload) -> None:
        name = names.workload_name(self.key[1])
        await self.client.delete(WORKLOADS, self.key[0], name, action.uid)
        gone = {"metadata": {"namespace": self.key[0], "name": name, "uid": action.uid}}
        self.changed |= self.stores.workloads.drop(gone)

    async def _apply_network_policy(self, action: ApplyNetworkPolicy) -> None:
        await self._ensure(self.stores.networkpolicies, action.body, self._replace)

    async def _delete_network_policy(self, action: DeleteNetworkPolicy) -> None:
        await self.client.delete(NETWORK_POLICIES, self.key[0], action.name, action.uid)
        gone = {"metadata": {"namespace": self.key[0], "name": action.name, "uid": action.uid}}
        self.changed |= self.stores.networkpolicies.drop(gone)

    async def _ensure(self, store: Store, body: Json, correct: Callable[[Json, Json], Awaitable[Json]]) -> None:
        """Make or correct a child of the job; an object with the same name and another owner is left alone.

        A child of an earlier job of the same name is taken over: its owner is gone for sure, and a garbage collector
        that missed the end of that job would never remove it.
        """
        known = store.get(key_of(body))
        if known is None or not _may_correct(known, body):
            self._take(store, await self.client.create_owned(body))
        else:
            self._take(store, await correct(known, body))

    async def _patch(self, known: Json, body: Json) -> Json:
        if not same_controller(known, body):  # an apply would leave the earlier owner beside ours
            seen = {name: known["metadata"][name] for name in ("uid", "resourceVersion")}
            owners = {"metadata": {**seen, "ownerReferences": body["metadata"]["ownerReferences"]}}
            await self.client.merge(resource_of(body), self.key[0], body["metadata"]["name"], owners)
        exact = {**body, "metadata": {**body["metadata"], "uid": known["metadata"]["uid"]}}
        return await self.client.apply(exact, MANAGER)

    async def _replace(self, known: Json, body: Json) -> Json:
        """Replace the child whole: a patch would keep foreign entries of ports and selectors.

        Labels and annotations of others stay; the store does not keep them, therefore the child is read again.
        """
        found = await self.client.get(resource_of(body), *key_of(body))
        live = found["metadata"]
        if live["uid"] != known["metadata"]["uid"] or not _may_correct(found, body):
            raise Conflict(409, "Conflict", f"{body['kind']} {live['name']} is another one by now")
        metadata = {**body["metadata"], **{key: live[key] for key in ("uid", "resourceVersion")}}
        metadata["labels"] = {**live.get("labels", {}), **metadata["labels"]}
        if live.get("annotations"):
            metadata["annotations"] = live["annotations"]
        return await self.client.replace({**body, "metadata": metadata})

    async def _bump(self, action: BumpAttempt) -> None:
        answer = await write_counters(self.client, self.job, action.attempt, action.restarts, action.resource_version)
        self._take(self.stores.jobs, answer)

    async def _dry_run(self, action: DryRunPod) -> None:
        try:
            await self.client.create(action.body, dry_run=True)
        except Conflict as conflict:
            if conflict.reason != "AlreadyExists":  # valid, then: whose it is shows when it is made
                raise

    async def _delete_pod(self, action: DeletePod) -> None:
        left = await self.client.delete(PODS, self.key[0], action.name, action.uid, grace_seconds=action.grace_seconds)
        if left is not None and left.get("kind") == "Pod" and left["metadata"].get("deletionTimestamp"):
            # terminating: it stays until its watch event, which may have come before this answer
            known = self.stores.pods.get(key_of(left))
            if known is not None and known["metadata"]["uid"] == action.uid:
                self._take(self.stores.pods, left)
        else:
            gone = {"metadata": {"namespace": self.key[0], "name": action.name, "uid": action.uid}}
            self.changed |= self.stores.pods.drop(gone)

    async def _touch_pod(self, action: TouchPod) -> None:
        metadata = {"uid": action.uid, "annotations": {names.ANNOTATION_CONTROL: str(action.generation)}}
        self._take(self.stores.pods, await self.client.merge(PODS, self.key[0], action.name, {"metadata": metadata}))

    async def _delete_job(self, action: DeleteJob) -> None:
        await self.client.delete(JOBS, *self.key, action.uid, resource_version=action.resource_version)

    async def write_status(self, status: Json) -> None:
        """Apply the job's whole status; a job that is gone needs none."""
        if (answer := await write_status(self.client, self.job, status)) is not None:
            self._take(self.stores.jobs, answer)


def _may_correct(known: Json, body: Json) -> bool:
    """Return whether a child is this job's, or of an earlier job of the same name."""
    return same_controller(known, body) or _is_left_behind(known, body)


def _is_left_behind(known: Json, body: Json) -> bool:
    """Return whether a child is of an earlier job of the same name and nobody is deleting it."""
    deleting = known["metadata"].get("deletionTimestamp")
    return not deleting and not same_controller(known, body) and of_namesake(known, body)


def batches(actions: tuple[Action, ...], most: Callable[[], int]) -> Iterator[list[Action]]:
    """Yield the actions in their order: pods to make, and to delete, 1, 2, 4 up to `most` at once, others alone."""
    for _, group in groupby(actions, type):
        size, alike = 1, list(group)
        while alike:
            size = min(size, most()) if _in_bulk(alike[0]) else 1
            yield alike[:size]
            alike, size = alike[size:], 2 * size


def _in_bulk(action: Action) -> bool:
    return isinstance(action, CreatePod | DeletePod)


def _subject(action: Action) -> str | None:
    """Return the worker group whose pod the action makes or the kind of the child it makes, None for other actions."""
    if isinstance(action, DryRunPod | CreatePod):
        return action.group
    if isinstance(action, CreateWorkload | PatchWorkload | ReportWorkload | DeleteWorkload):
        return "Workload"
    if isinstance(action, CreateService | ApplyConfigMap | ApplyPodGroup | ApplyNetworkPolicy):
        return str(action.body["kind"])
    return None
