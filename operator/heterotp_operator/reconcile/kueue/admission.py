"""What Kueue says of a job: whether its Workload is admitted or evicted, and with how many pods of each group."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from heterotp_api import reasons

Body = dict[str, Any]


@dataclass(frozen=True)
class KueueRecords:
    """What was read for a job that Kueue admits: its Workload, the flavors that it names, its priority.

    missing: reason and message where a priority class or flavor is not there, or cannot be read.
    unknown: the Workload of a gang with pods could not be read: nothing follows from its absence.
    """

    workload: Body | None = None
    flavors: Mapping[str, Body] = field(default_factory=dict)  # name -> spec of the ResourceFlavor
    priority: int = 0
    missing: tuple[str, str] | None = None
    unknown: bool = False


def conditions_of(workload: Body | None) -> dict[str, Body]:
    """Return the conditions of a Workload by type."""
    listed = ((workload or {}).get("status") or {}).get("conditions") or ()
    return {str(each.get("type")): each for each in listed}


def holds(workload: Body | None, kind: str) -> bool:
    """Return whether a condition of a Workload is True."""
    return bool(conditions_of(workload).get(kind, {}).get("status") == "True")


def assignments(workload: Body | None) -> dict[str, Body]:
    """Return what Kueue assigned to each pod set, by its name."""
    admission = ((workload or {}).get("status") or {}).get("admission") or {}
    return {str(each.get("name")): each for each in admission.get("podSetAssignments") or ()}


def is_admitted(workload: Body | None) -> bool:
    """Return whether the pods of a Workload may exist."""
    if workload is None or workload["metadata"].get("deletionTimestamp"):
        return False
    return holds(workload, "Admitted") and not is_evicted(workload) and bool(assignments(workload))


def is_evicted(workload: Body) -> bool:
    """Return whether Kueue takes the place back."""
    inactive = (workload.get("spec") or {}).get("active") is False
    return inactive or holds(workload, "Evicted") or holds(workload, "Finished")


def holds_quota(workload: Body | None) -> bool:
    """Return whether quota is reserved for a Workload."""
    return holds(workload, "QuotaReserved")


def admitted_pods(workload: Body | None, group: str, least: int | None, most: int) -> int:
    """Return how many pods of a worker group are admitted: within what the job allows, whoever wrote the status."""
    count = assignments(workload).get(group, {}).get("count") if holds_quota(workload) else None
    if type(count) is not int or least is None:
        return most
    return min(max(count, least), most)


def refusal_of(workload: Body | None) -> tuple[str, str]:
    """Return Kueue's reason and message why a Workload is not admitted."""
    known = conditions_of(workload)
    if (workload or {}).get("spec", {}).get("active") is False or holds(workload, "Evicted"):
        order = ["Evicted", "QuotaReserved", "Admitted"]
    else:
        order = ["QuotaReserved", "Admitted"]
    for kind in order:
        told = known.get(kind, {})
        if told and (told.get("status") == "True") == (kind == "Evicted"):
            return str(told.get("reason") or kind)[:128], str(told.get("message") or "")
    return reasons.NOT_EVALUATED, "Kueue has not evaluated the Workload yet"


def updates(workload: Body | None, group: str) -> Iterator[Body]:
    """Yield what admission checks add to the pods of a group."""
    for check in ((workload or {}).get("status") or {}).get("admissionChecks") or ():
        for update in check.get("podSetUpdates") or ():
            if update.get("name") == group:
                yield update
