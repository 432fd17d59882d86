"""The thin layer on kopf: a handler updates a store and enqueues keys; nothing here can fail. Pods: pod_events.py."""

from collections.abc import Awaitable, Callable
from typing import Any

import kopf

from heterotp_operator.cluster import OWNED, Resource
from heterotp_operator.informers import Informers, child_kinds, own_kinds
from heterotp_operator.metrics import Metrics
from heterotp_operator.page_size import FIRST
from heterotp_operator.settings import Settings

Login = Callable[[], Awaitable[kopf.AiohttpSession]]


def build_registry(
    informers: Informers,
    metrics: Metrics,
    login: Login,
    relisted: Callable[[], None],
    injections: str = "on",
    network_policies: bool = False,
    kueue: str = "off",
) -> kopf.OperatorRegistry:
    """Return kopf's registry with on.event handlers for our kinds and the children of jobs, and the login.

    `relisted` is called for each object that comes from a list instead of a watch; injections: `Settings.injections`;
    network_policies: whether `Settings.network_peers` are given; kueue: `Settings.kueue`.
    """
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def log_in(**_: Any) -> kopf.AiohttpSession:
        return await login()

    for resource in (*own_kinds(injections), *child_kinds(network_policies, kueue)):
        _watch(registry, resource, informers, metrics, relisted)
    return registry


def _watch(
    registry: kopf.OperatorRegistry,
    resource: Resource,
    informers: Informers,
    metrics: Metrics,
    relisted: Callable[[], None],
) -> None:
    group, _, version = resource.api_version.rpartition("/")

    @kopf.on.event(group, version, resource.plural, registry=registry, id=f"take-{resource.plural}")
    async def take(event: kopf.RawEvent, **_: Any) -> None:
        kind, body = event["type"], event["object"]
        metrics.watch_events.labels(resource.plural, kind or "LISTED").inc()
        if kind is None:
            relisted()
        informers.take(resource, kind, dict(body))
        if kind != "DELETED":
            _release(body)


def _release(body: Any) -> None:
    """Empty an object that the store has trimmed: kopf holds it for a while, and it may be 30 MiB."""
    for field in ("spec", "status", "data"):
        body.pop(field, None)
    for field in ("annotations", "managedFields", "labels", "ownerReferences"):
        body["metadata"].pop(field, None)


class NoProgress(kopf.ProgressStorage):
    """Stores nothing: no handler of ours has progress, and kopf then copies no bodies."""

    def fetch(self, **_: Any) -> None:
        """Return nothing."""

    def store(self, **_: Any) -> None:
        """Store nothing."""

    def purge(self, **_: Any) -> None:
        """Purge nothing."""

    def touch(self, **_: Any) -> None:
        """Touch nothing."""

    def clear(self, *, essence: Any) -> Any:
        """Return the essence as it is."""
        return essence


class NoDiffBase(kopf.DiffBaseStorage):
    """Remembers nothing."""

    def build(self, **_: Any) -> Any:
        """Return an empty essence instead of a deep copy of the body."""
        return {}

    def fetch(self, **_: Any) -> None:
        """Return nothing."""

    def store(self, **_: Any) -> None:
        """Store nothing."""


def kopf_settings(settings: Settings) -> kopf.OperatorSettings:
    """Return kopf's settings: an informer without writes, with bounded calls and short-lived per-object workers."""
    result = kopf.OperatorSettings()
    result.persistence.progress_storage = NoProgress()
    result.persistence.diffbase_storage = NoDiffBase()
    result.queueing.idle_timeout = 0.2
    result.queueing.worker_limit = None
    result.watching.chunk_size = FIRST  # bounded_lists.py sets another one
    result.watching.initial_streaming = False
    result.watching.server_timeout = 300
    result.watching.client_timeout = 310
    result.watching.connect_timeout = 10
    for resource in child_kinds(network_policies=True, kueue="on"):
        group, _, version = resource.api_version.rpartition("/")
        result.watching.label_selectors[group, version, resource.plural] = OWNED
    result.networking.request_timeout = settings.api_timeout_seconds
    result.networking.connect_timeout = 10
    result.networking.enforce_retry_after = True
    result.posting.enabled = False
    result.peering.standalone = True
    result.scanning.disabled = True  # needs no right to list namespaces and CRDs
    result.process.ultimate_exiting_timeout = 10  # a broken watch makes kopf hang on its way out, blind
    return result
