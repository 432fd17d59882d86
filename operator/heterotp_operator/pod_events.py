"""The watch of the pods of jobs: most of what the API server has to say.

kopf keeps a task, a queue and views of every object that changes; of 800 pods that came up, that was a fifth of the
operator's time. This watch is opened where it ended; when events may be missing, the pods are listed again.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from heterotp_operator.cluster import GONE, OWNED, PODS, ApiError, Cluster
from heterotp_operator.informers import Informers
from heterotp_operator.login import WatchTrace
from heterotp_operator.metrics import Metrics
from heterotp_operator.store import Json, key_of

logger = logging.getLogger(__name__)
REOPEN_SECONDS = 0.1  # after a watch that the API server has ended
RETRY_SECONDS = 1.0  # after an error
LONG_SECONDS = 5.0  # a watch that was open for so long ended in the ordinary way

ListPods = Callable[[str | None], Awaitable[int]]
"""Lists the pods of a namespace (None: of all), takes them in, and returns the resourceVersion of the list."""


class PodEvents:
    """Takes in the events of the pods of one namespace, or of all."""

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        list_pods: ListPods,
        metrics: Metrics,
        trace: WatchTrace,
        namespace: str | None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._cluster, self._informers, self._list = cluster, informers, list_pods
        self._metrics, self._trace, self._namespace, self._sleep = metrics, trace, namespace, sleep
        self._version = 0  # up to which everything is taken in; 0: the pods have to be listed

    async def run(self) -> None:
        """Watch for ever."""
        while True:
            opened = time.monotonic()
            try:
                await self._watch()
                pause = REOPEN_SECONDS
            except ApiError as error:
                logger.warning("watch of pods: %s", error)
                if error.code == GONE:
                    self._version = 0
                pause = REOPEN_SECONDS if time.monotonic() - opened > LONG_SECONDS else RETRY_SECONDS
            await self._sleep(pause)

    async def _watch(self) -> None:
        """Take in events until the watch ends. Raises ApiError."""
        if self._version == 0:
            self._version = await self._list(self._namespace)
        async for event in self._events():
            body = event["object"]
            if event["type"] == "ERROR":
                raise ApiError(int(body.get("code") or 0), str(body.get("reason")), str(body.get("message")))
            if event["type"] != "BOOKMARK":
                self._take(event["type"], body)
            version = str(body["metadata"].get("resourceVersion", ""))
            self._version = int(version) if version.isdigit() else self._version

    def _events(self) -> AsyncIterator[Json]:
        self._trace.note(PODS.plural)
        return self._cluster.watch(PODS, self._namespace, self._version, OWNED)

    def _take(self, kind: str, body: Json) -> None:
        self._metrics.watch_events.labels(PODS.plural, kind).inc()
        try:
            self._informers.take(PODS, kind, body)
        except Exception:  # whatever one object holds: the others are watched all the same
            logger.exception("Pod %s is left out", key_of(body))
