"""The event recorder: equal events are counted up instead of repeated, and no object can flood the API server."""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Protocol

from heterotp_operator.cluster import EVENTS, ApiError, NotFound, Resource
from heterotp_operator.store import Json

logger = logging.getLogger(__name__)
COMPONENT = "heterotp-operator"
REMEMBERED = 4096
BURST = 25
SECONDS_PER_EVENT = 30.0
MAX_MESSAGE = 1024  # events.v1 refuses longer notes


class EventLike(Protocol):
    """An event as a decision contains it."""

    @property
    def type(self) -> str:
        """Normal or Warning."""

    @property
    def reason(self) -> str:
        """CamelCase word."""

    @property
    def message(self) -> str:
        """One sentence for a person."""


class EventClient(Protocol):
    """The calls to the API server that the recorder needs."""

    async def create(self, body: Json) -> Json:
        """Create the Event."""

    async def merge(self, resource: Resource, namespace: str, name: str, patch: Json) -> Json:
        """Patch the Event. Raises NotFound."""


@dataclass
class _Bucket:
    tokens: float
    filled: float


class Recorder:
    """Writes events of our objects; a failure to write one is logged and never disturbs a reconcile."""

    def __init__(
        self,
        cluster: EventClient,
        instance: str,
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._cluster, self._instance, self._now, self._wall = cluster, instance, now, wall
        self._counts: OrderedDict[tuple[str, str, str], tuple[str, int]] = OrderedDict()
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    async def record(self, job: Json, event: EventLike) -> None:
        """Create the event, or count up the one with the same reason and message of the same object."""
        uid = job["metadata"]["uid"]
        if not self._allowed(uid):
            return
        key = uid, event.reason, event.message[:MAX_MESSAGE]  # kept for thousands of events
        name, count = self._counts.get(key, ("", 0))
        try:
            name = await self._write(job, event, name, count + 1)
        except ApiError as error:
            logger.warning("event %s of %s not written: %s", event.reason, job["metadata"]["name"], error)
            return
        self._counts[key] = name, count + 1
        self._counts.move_to_end(key)
        while len(self._counts) > REMEMBERED:
            self._counts.popitem(last=False)

    async def _write(self, job: Json, event: EventLike, name: str, count: int) -> str:
        if name:
            patch = {"count": count, "lastTimestamp": self._time()}
            try:
                await self._cluster.merge(EVENTS, job["metadata"]["namespace"], name, patch)
                return name
            except NotFound:  # events live for an hour; this one starts a new count
                count = 1
        body = self._body(job, event, count)
        await self._cluster.create(body)
        return str(body["metadata"]["name"])

    def _body(self, job: Json, event: EventLike, count: int) -> Json:
        metadata = job["metadata"]
        unique = sha256(f"{metadata['uid']} {event.reason} {event.message} {self._wall().timestamp()}".encode())
        involved = {key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion") if key in metadata}
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{metadata['name'][:200]}.{unique.hexdigest()[:16]}",
                "namespace": metadata["namespace"],
            },
            "involvedObject": {"apiVersion": job["apiVersion"], "kind": job["kind"], **involved},
            "type": event.type,
            "reason": event.reason,
            "message": event.message[:MAX_MESSAGE],
            "count": count,
            "firstTimestamp": self._time(),
            "lastTimestamp": self._time(),
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._instance[:128],
        }

    def _allowed(self, uid: str) -> bool:
        now = self._now()
        bucket = self._buckets.setdefault(uid, _Bucket(BURST, now))
        self._buckets.move_to_end(uid)
        while len(self._buckets) > REMEMBERED:
            self._buckets.popitem(last=False)
        bucket.tokens = min(BURST, bucket.tokens + (now - bucket.filled) / SECONDS_PER_EVENT)
        bucket.filled = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True

    def _time(self) -> str:
        return self._wall().strftime("%Y-%m-%dT%H:%M:%SZ")
