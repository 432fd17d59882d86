"""Reconciles of policies and injections: they own no objects; only their status is kept up to date."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from heterotp_operator.cluster import Cluster, Resource
from heterotp_operator.events import Recorder
from heterotp_operator.informers import Informers
from heterotp_operator.observe import observe
from heterotp_operator.published import PublishedControls
from heterotp_operator.queue import Key
from heterotp_operator.reconcile.actions import Event
from heterotp_operator.reconcile.injection_status import ObservedInjection, injection_status
from heterotp_operator.reconcile.objects import injection_selects, is_ours
from heterotp_operator.reconcile.observed import Observed
from heterotp_operator.reconcile.policy_status import ObservedPolicy, policy_status
from heterotp_operator.settings import Settings
from heterotp_operator.status_throttle import due, due_later
from heterotp_operator.status_writer import write_status
from heterotp_operator.store import Json, Stores, key_of
from heterotp_operator.trainer_poller import TrainerPoller

Decide = Callable[[Key, Json, float], tuple[Json, tuple[Event, ...]]]


class StatusDecisions:
    """The two kinds' statuses, decided on what the stores, the poller and the jobs' last reconciles hold."""

    def __init__(self, stores: Stores, poller: TrainerPoller, settings: Settings, published: PublishedControls) -> None:
        self._stores, self._poller, self._settings, self._published = stores, poller, settings, published

    def policy(self, key: Key, body: Json, now: float) -> tuple[Json, tuple[Event, ...]]:
        """Return a policy's status and events."""
        return policy_status(ObservedPolicy(body, self._stores.policies.in_namespace(key[0]), self._jobs(key[0]), now))

    def injection(self, key: Key, body: Json, now: float) -> tuple[Json, tuple[Event, ...]]:
        """Return an injection's status and events."""
        jobs = [job for job in self._jobs(key[0]) if injection_selects(body, job)]
        return injection_status(ObservedInjection(body, tuple(self._job(key_of(job), job, now) for job in jobs), now))

    def _jobs(self, namespace: str) -> tuple[Json, ...]:
        return tuple(job for job in self._stores.jobs.in_namespace(namespace) if is_ours(job))

    def _job(self, key: Key, job: Json, now: float) -> Observed:
        control = self._published.get(key)
        return observe(self._stores, self._poller, self._settings, key, job, now, control=control)


@dataclass
class _Memory:
    uid: str
    written_at: float = float("-inf")


class StatusReconciler:
    """Keeps the status of one kind's objects up to date."""

    def __init__(
        self,
        resource: Resource,
        informers: Informers,
        decide: Decide,
        cluster: Cluster,
        recorder: Recorder,
        now: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._resource, self._informers, self._decide = resource, informers, decide
        self._store = informers.store_of(resource)
        self._cluster, self._recorder, self._now, self._monotonic = cluster, recorder, now, monotonic
        self._memories: dict[Key, _Memory] = {}

    async def reconcile(self, key: Key) -> float | None:
        """Decide on one object's status and write it if it is due; return the seconds until it is. Raises ApiError."""
        body = self._store.get(key)
        if body is None:
            self._memories.pop(key, None)
            return None
        memory = self._memory(key, body["metadata"]["uid"])
        status, events = self._decide(key, body, self._now())
        now = self._monotonic()
        age = now - memory.written_at
        if write := due(body["status"], status, age):
            if (answer := await write_status(self._cluster, body, status)) is not None:
                self._informers.upsert(self._resource, answer)  # it may be the first to show an edit
            memory.written_at = now
        for event in events:
            await self._recorder.record(body, event)
        return None if write else due_later(body["status"], status, age)

    def _memory(self, key: Key, uid: str) -> _Memory:
        memory = self._memories.get(key)
        if memory is None or memory.uid != uid:
            memory = self._memories[key] = _Memory(uid)
        return memory
