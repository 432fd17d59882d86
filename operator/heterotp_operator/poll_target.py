"""Where a poll goes: only to the running pod of rank 0 of a job's current attempt, whose controller is the job."""

import ipaddress
from dataclasses import dataclass

from heterotp_api import names

from heterotp_operator.reconcile.objects import at
from heterotp_operator.store import Json, controller_of

DEFAULT_PORT = 9400


@dataclass(frozen=True)
class Target:
    """Where rank 0 of a job answers."""

    pod_uid: str
    address: str
    port: int


def target(job: Json | None, pods: list[Json]) -> Target | None:
    """Return where to ask: the running pod of rank 0 of the job's current attempt, None if there is none.

    A pod is the job's when the job's uid is its controller's; anybody can write labels.
    """
    if job is None:
        return None
    attempt = str(job["status"].get("attempt", ""))
    for pod in pods:
        labels, status = pod["metadata"].get("labels") or {}, pod["status"]
        current = labels.get(names.LABEL_FIRST_RANK) == "0" and labels.get(names.LABEL_ATTEMPT) == attempt
        owned = (controller_of(pod) or {}).get("uid") == job["metadata"]["uid"]
        if owned and current and status.get("phase") == "Running" and _is_address(status.get("podIP")):
            return Target(pod["metadata"]["uid"], status["podIP"], _port(job))
    return None


def _is_address(text: object) -> bool:
    try:
        return isinstance(text, str) and bool(ipaddress.ip_address(text))
    except ValueError:
        return False


def _port(job: Json) -> int:
    port = at(job, "spec", "metrics", "port")
    return port if isinstance(port, int) and 0 < port < 1 << 16 else DEFAULT_PORT
