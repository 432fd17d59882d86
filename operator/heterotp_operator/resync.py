"""Full lists: the first one fills the stores, later ones find what a watch has missed."""

import asyncio
import logging
import random
from collections.abc import Callable

from heterotp_operator.cluster import GONE, OWNED, PODS, WORKLOADS, ApiError, Cluster, Resource
from heterotp_operator.informers import Informers, child_kinds, own_kinds
from heterotp_operator.settings import Settings
from heterotp_operator.store import Json, Stores, key_of

logger = logging.getLogger(__name__)
RETRY_SECONDS = 2.0
JITTER = 0.1
NOT_FOUND = 404
UNWATCHED_SECONDS = 10.0


class Resync:
    """Lists everything at start, every 300 s +-10 %, and 5 s after kopf has listed again."""

    def __init__(
        self,
        cluster: Cluster,
        stores: Stores,
        informers: Informers,
        settings: Settings,
        jitter: Callable[[], float] = lambda: random.uniform(1 - JITTER, 1 + JITTER),
    ) -> None:
        self._cluster, self._stores, self._informers, self._settings = cluster, stores, informers, settings
        self._jitter = jitter
        self._relisted = asyncio.Event()
        self.synced = asyncio.Event()
        self._unwatched = False  # whether Workloads were not served at the start
        self._unlisted: set[str | None] = set()  # namespaces whose Workloads could not be listed yet

    def relisted(self) -> None:
        """Note that kopf has listed again: deletions may have been missed."""
        self._relisted.set()

    async def run(self) -> None:
        """Fill the stores, set `synced`, then list again for ever; a failed list is tried again."""
        while True:
            try:
                await self.once()
            except ApiError as error:
                logger.warning("list failed, trying again: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if not self.synced.is_set():
                logger.info("stores are filled: %d jobs, %d pods", len(self._stores.jobs), len(self._stores.pods))
                self.synced.set()
            await self._pause()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._settings.resync_seconds * self._jitter()):
                while (self._unwatched or self._unlisted) and not self._relisted.is_set():
                    await asyncio.sleep(UNWATCHED_SECONDS)
                    for namespace in self._settings.namespaces or (None,):
                        await self._list_workloads(namespace)
                await self._relisted.wait()
                await asyncio.sleep(self._settings.relist_resync_seconds)
        except TimeoutError:
            pass
        self._relisted.clear()

    async def once(self) -> None:
        """List every kind, take what changed, drop what vanished."""
        for namespace in self._settings.namespaces or (None,):
            # jobs last: when a job is seen for the first time, what it depends on is known already
            for resource in (PODS, *child_kinds(self._settings.network_peers is not None)):
                await self._list(resource, namespace, OWNED)
            if self._settings.kueue == "on":
                await self._list_workloads(namespace)
            for resource in own_kinds(self._settings.injections):
                await self._list(resource, namespace, "")
        self._stores.podgroups.clear()  # not watched: read again by the next reconcile that needs one

    async def _list_workloads(self, namespace: str | None) -> None:
        """List the Workloads; where Kueue is away, what is known of them stays."""
        try:
            await self._list(WORKLOADS, namespace, OWNED)
        except ApiError as error:
            logger.warning("list of Workloads failed: %s", error)
            # kopf watches no kind that is not served when it starts
            self._unwatched |= error.code == NOT_FOUND and not self.synced.is_set()
            self._unlisted.add(namespace)
        else:
            self._unlisted.discard(namespace)

    async def list_pods(self, namespace: str | None) -> int:
        """List the pods of a namespace, None: of all; return the resourceVersion of the list. Raises ApiError."""
        return await self._list(PODS, namespace, OWNED)

    async def _list(self, resource: Resource, namespace: str | None, selector: str) -> int:
        try:
            return await self._list_once(resource, namespace, selector)
        except ApiError as error:
            if error.code != GONE:
                raise
            return await self._list_once(resource, namespace, selector)  # it outlived its snapshot: begin again

    async def _list_once(self, resource: Resource, namespace: str | None, selector: str) -> int:
        seen: set[str] = set()
        version = 0
        async for page, page_version in self._cluster.pages(resource, namespace, selector):
            version = page_version
            for body in page:
                seen.add(body["metadata"]["uid"])
                self._take(resource, body)
            await asyncio.sleep(0)
        self._drop_vanished(resource, seen, version, namespace)
        return version

    def _take(self, resource: Resource, body: Json) -> None:
        try:
            self._informers.upsert(resource, body)
        except Exception:  # whatever one object holds: the others are listed all the same
            logger.exception("%s %s is left out", resource.kind, key_of(body))

    def _drop_vanished(self, resource: Resource, seen: set[str], version: int, namespace: str | None) -> None:
        for record in self._informers.store_of(resource).vanished(seen, version, namespace):
            self._informers.drop(resource, record)
