"""The Lease gate: one operator works, the others wait; a process that loses the Lease ends at once."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from heterotp_operator.cluster import LEASES, ApiError, Conflict, NotFound, Resource
from heterotp_operator.store import Json

logger = logging.getLogger(__name__)


class LeaseClient(Protocol):
    """The calls to the API server that the gate needs."""

    async def get(self, resource: Resource, namespace: str, name: str) -> Json:
        """Return the Lease. Raises NotFound."""

    async def create(self, body: Json) -> Json:
        """Create the Lease. Raises Conflict."""

    async def replace(self, body: Json) -> Json:
        """Replace the Lease by resourceVersion. Raises Conflict."""


@dataclass(frozen=True)
class LeaseTimes:
    """Seconds: how long a record is valid without renewal, how long its holder tries to renew it, how often."""

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0


def _leave() -> None:
    os._exit(1)  # nothing may be written after the loss, not even by a task that is being cancelled


class LeaseGate:
    """Holds the Lease or waits for it.

    A holder counts as dead when its record has not changed for `duration` by our own monotonic clock, whatever time
    it wrote.
    """

    def __init__(
        self,
        cluster: LeaseClient,
        namespace: str,
        name: str,
        identity: str,
        times: LeaseTimes | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        leave: Callable[[], None] = _leave,
    ) -> None:
        self._cluster, self._namespace, self._name, self._identity = cluster, namespace, name, identity
        self._times = times or LeaseTimes()
        self._now, self._wall, self._sleep, self._leave = now, wall, sleep, leave
        self._seen: tuple[str, str] | None = None  # uid and resourceVersion of the record last seen
        self._seen_at = 0.0
        self._taken = False
        self.leading = False

    async def acquire(self) -> None:
        """Return once this process holds the Lease."""
        while not await self._attempt():
            await self._sleep(self._times.retry)
        self.leading = True
        logger.info("holds the Lease %s/%s as %s", self._namespace, self._name, self._identity)

    async def keep(self) -> None:
        """Renew for ever; end the process when renewing has failed for the renew deadline."""
        renewed, hung = self._now(), False
        while True:
            if not hung:  # else the rest of the time is the next call's
                await self._sleep(self._times.retry)
            started, hung = self._now(), False
            left = renewed + self._times.renew_deadline - started
            try:
                # one call that hangs takes half of the time at most, so that another one is tried
                async with asyncio.timeout(max(0.1, min(left, self._times.renew_deadline / 2))):
                    if await self._attempt():
                        renewed = started  # the others count from the write, not from its answer
            except TimeoutError:
                hung = True
                logger.warning("Lease %s/%s: no answer for %.1f s", self._namespace, self._name, self._now() - started)
            if self._taken or self._now() - renewed >= self._times.renew_deadline:
                logger.critical("lost the Lease %s/%s: leaving", self._namespace, self._name)
                self._leave()
                return

    async def release(self) -> None:
        """Give the Lease back, so that a standby takes over at once."""
        if not self.leading:
            return
        self.leading = False
        with contextlib.suppress(ApiError):
            lease = await self._cluster.get(LEASES, self._namespace, self._name)
            if lease["spec"].get("holderIdentity") == self._identity:
                await self._cluster.replace({**lease, "spec": {**lease["spec"], "holderIdentity": ""}})

    async def _attempt(self) -> bool:
        """Create, renew or take over the Lease; return whether we hold it now."""
        try:
            lease = await self._cluster.get(LEASES, self._namespace, self._name)
            if not self._may_take(lease):
                return False
            await self._cluster.replace({**lease, "spec": self._spec(lease["spec"])})
        except NotFound:
            return await self._create()
        except Conflict:
            return False
        except ApiError as error:
            logger.warning("Lease %s/%s: %s", self._namespace, self._name, error)
            return False
        return True

    async def _create(self) -> bool:
        metadata = {"namespace": self._namespace, "name": self._name}
        body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": self._spec({})}
        try:
            await self._cluster.create(body)
        except ApiError as error:
            if not isinstance(error, Conflict):
                logger.warning("Lease %s/%s: %s", self._namespace, self._name, error)
            return False
        return True

    def _may_take(self, lease: Json) -> bool:
        holder = lease["spec"].get("holderIdentity")
        if holder in (self._identity, None, ""):
            return True
        if self.leading:  # this process was frozen for so long that another one took the Lease
            self._taken = True
            return False
        seen = lease["metadata"].get("uid", ""), lease["metadata"]["resourceVersion"]
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._now()
        patience = max(self._times.duration, float(lease["spec"].get("leaseDurationSeconds") or 0))
        return self._now() - self._seen_at >= patience

    def _spec(self, old: Json) -> Json:
        now = self._wall().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        ours = old.get("holderIdentity") == self._identity
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._times.duration)),
            "acquireTime": old.get("acquireTime", now) if ours else now,
            "renewTime": now,
            "leaseTransitions": int(old.get("leaseTransitions") or 0) + (0 if ours else 1),
        }
