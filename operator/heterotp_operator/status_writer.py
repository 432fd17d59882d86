"""Writes the status of our kinds by server-side apply; the attempt's counters have a field manager of their own.

Of 150 jobs, four times in turns on one machine, a write took (median) 12.4 ms of the API server's CPU by apply, 12.3 ms
by merge patch and 10.9 ms by PUT; the client's share was 1.0 to 1.1 ms. A merge patch leaves fields behind that a next
version does not know, and a PUT takes the whole status, the attempt's counters among it: not worth 12 %.
"""

from typing import Protocol

from heterotp_operator.cluster import ATTEMPT_MANAGER, STATUS_MANAGER, NotFound
from heterotp_operator.reconcile.actions import COUNTERS
from heterotp_operator.reconcile.conditions import FIRST_PHASE
from heterotp_operator.store import Json


class StatusClient(Protocol):
    """What writing a status needs of the cluster."""

    async def apply(self, body: Json, manager: str, subresource: str = "") -> Json:
        """Server-side apply."""


async def write_status(client: StatusClient, live: Json, status: Json) -> Json | None:
    """Apply the whole status of a live object except the counters; return the answer, None when the object is gone.

    Raises ApiError.
    """
    ours = {name: value for name, value in status.items() if name not in COUNTERS}
    try:
        return await client.apply(_body(live, ours), STATUS_MANAGER, "status")
    except NotFound:
        return None  # its watch event does the rest


async def write_counters(client: StatusClient, live: Json, attempt: int, restarts: int, resource_version: str) -> Json:
    """Apply the counters of a job; raises Conflict when the job is not at this resourceVersion any more.

    A job without any status gets its first phase along with them; every later one is the status writer's.
    """
    counters = dict(zip(COUNTERS, (attempt, restarts), strict=True))
    first = {} if (live.get("status") or {}).get("phase") else {"phase": FIRST_PHASE}
    return await client.apply(_body(live, {**counters, **first}, resource_version), ATTEMPT_MANAGER, "status")


def _body(live: Json, status: Json, resource_version: str | None = None) -> Json:
    metadata = {key: live["metadata"][key] for key in ("name", "namespace", "uid")}
    if resource_version is not None:
        metadata["resourceVersion"] = resource_version
    return {"apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": metadata, "status": status}
