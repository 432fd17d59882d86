"""Stores what watches and lists deliver, and enqueues the keys whose state may change because of it.

A policy or an injection concerns the jobs that it selects now and those that it selected before; a job concerns its
policies and injections likewise. Nothing here can fail.
"""

from collections.abc import Callable, Sequence

from heterotp_operator.cluster import (
    CONFIGMAPS,
    INJECTIONS,
    JOBS,
    NETWORK_POLICIES,
    PODS,
    POLICIES,
    SERVICES,
    WORKLOADS,
    Resource,
)
from heterotp_operator.queue import Key
from heterotp_operator.reconcile.objects import injection_selects, policy_selects
from heterotp_operator.store import Json, Store, Stores, job_key, key_of

Enqueue = Callable[[Resource, Key], None]


def own_kinds(injections: str) -> tuple[Resource, ...]:
    """Return the kinds of ours that are listed and watched, jobs last; injections: `Settings.injections`."""
    return (POLICIES, INJECTIONS, JOBS) if injections == "on" else (POLICIES, JOBS)


def child_kinds(network_policies: bool, kueue: str = "off") -> tuple[Resource, ...]:
    """Return the kinds of jobs' children beside pods that kopf watches; two of them need rights of their own."""
    policies = [NETWORK_POLICIES] if network_policies else []
    return (SERVICES, CONFIGMAPS, *policies, *([WORKLOADS] if kueue == "on" else []))


class Informers:
    """Stores objects of watches and lists, and enqueues the keys that depend on them."""

    def __init__(self, stores: Stores, enqueue: Enqueue) -> None:
        self._stores, self._enqueue = stores, enqueue

    def store_of(self, resource: Resource) -> Store:
        """Return the store of a resource."""
        return {
            JOBS: self._stores.jobs,
            POLICIES: self._stores.policies,
            INJECTIONS: self._stores.injections,
            PODS: self._stores.pods,
            SERVICES: self._stores.services,
            CONFIGMAPS: self._stores.configmaps,
            NETWORK_POLICIES: self._stores.networkpolicies,
            WORKLOADS: self._stores.workloads,
        }[resource]

    def take(self, resource: Resource, event: str | None, body: Json) -> None:
        """Take in the event of a watch, by its type; None: the object is of a list."""
        if event == "DELETED":
            self.drop(resource, body)
        else:
            self.upsert(resource, body)

    def upsert(self, resource: Resource, body: Json) -> None:
        """Store an object; if it changed, enqueue the keys that depend on it."""
        store = self.store_of(resource)
        before = store.get(key_of(body))
        if store.upsert(body):
            self._enqueue_concerned(resource, before, store.get(key_of(body)))

    def drop(self, resource: Resource, body: Json) -> None:
        """Remove a deleted object; enqueue the keys that depended on it."""
        store = self.store_of(resource)
        before = store.get(key_of(body))
        if store.drop(body):
            self._enqueue_concerned(resource, before, None)

    def enqueue_dependents(self, *jobs: Json | None) -> None:
        """Enqueue the policies and injections that select a job: their status depends on it."""
        for job in filter(None, jobs):
            namespace = key_of(job)[0]
            for policy in self._stores.policies.in_namespace(namespace):
                if policy_selects(policy, job):
                    self._enqueue(POLICIES, key_of(policy))
            for injection in self._stores.injections.in_namespace(namespace):
                if injection_selects(injection, job):
                    self._enqueue(INJECTIONS, key_of(injection))

    def _enqueue_concerned(self, resource: Resource, before: Json | None, after: Json | None) -> None:
        """Enqueue the keys that depend on the object before or after; None: the object was or is absent."""
        versions = [body for body in (before, after) if body is not None]
        if resource is JOBS:
            self._enqueue(JOBS, key_of(versions[0]))
            self.enqueue_dependents(*versions)
        elif resource in (POLICIES, INJECTIONS):
            self._enqueue(resource, key_of(versions[0]))
            if not _same_spec(before, after):
                self._enqueue_selected(resource, versions)
        else:
            for key in {job_key(before), job_key(after)} - {None}:
                assert key is not None
                self._enqueue(JOBS, key)

    def _enqueue_selected(self, resource: Resource, versions: Sequence[Json]) -> None:
        """Enqueue the jobs that a policy or an injection selects or selected; for a policy, all policies as well."""
        namespace = key_of(versions[0])[0]
        selects = policy_selects if resource is POLICIES else injection_selects
        for job in self._stores.jobs.in_namespace(namespace):
            if any(selects(version, job) for version in versions):
                self._enqueue(JOBS, key_of(job))
        if resource is POLICIES:  # another policy may govern these jobs now
            for policy in self._stores.policies.in_namespace(namespace):
                self._enqueue(POLICIES, key_of(policy))


def _same_spec(before: Json | None, after: Json | None) -> bool:
    """Return whether only the status or labels and annotations differ."""
    if before is None or after is None:
        return False
    return all(
        before["metadata"].get(field) == after["metadata"].get(field)
        for field in ("uid", "generation", "deletionTimestamp")
    )
