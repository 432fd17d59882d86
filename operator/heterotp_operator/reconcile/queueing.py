"""A job that Kueue admits: its Workload, the wait for admission, eviction, and what Kueue is told of the gang.

Quota is given back only when no pod of the job is left. What Kueue does not take (its webhooks are away) is tried
again, and delays nothing else.
"""

from functools import partial

from heterotp_api import names, reasons
from heterotp_api.conditions import ADMITTED, FAILED, PODS_READY, RESTARTING, SUCCEEDED

from heterotp_operator.reconcile.actions import (
    Action,
    CreateWorkload,
    DeleteWorkload,
    DryRunPod,
    PatchWorkload,
    ReportWorkload,
)
from heterotp_operator.reconcile.conditions import Conditions
from heterotp_operator.reconcile.kueue.admission import (
    conditions_of,
    holds,
    holds_quota,
    is_admitted,
    is_evicted,
    refusal_of,
)
from heterotp_operator.reconcile.observed import Body, Observed, ended, phase, stamp
from heterotp_operator.reconcile.pods import pod_body
from heterotp_operator.reconcile.workload import is_as_asked, workload_body

REQUEUED = ("Preempted", "NodeFailures")  # reasons of an eviction after which the job is in the queue again at once
MOST_MESSAGE = 4096
RETRY_SECONDS = 5.0


def admitted(observed: Observed) -> bool:
    """Return whether the pods of a job may exist: Kueue has admitted it, or it needs no admission."""
    if not observed.queued:
        return True
    return observed.settings.kueue == "on" and is_admitted(own_workload(observed))


def is_taken_back(observed: Observed) -> bool:
    """Return whether Kueue takes back the places of a gang that runs; who cannot ask takes nothing back."""
    return observed.settings.kueue == "on" and not observed.kueue.unknown and not admitted(observed)


def own_workload(observed: Observed) -> Body | None:
    """Return the Workload of the job's name if the job is its controller."""
    workload = observed.kueue.workload
    owners = ((workload or {}).get("metadata") or {}).get("ownerReferences") or ()
    return workload if any(each.get("controller") and each.get("uid") == observed.uid for each in owners) else None


def request(observed: Observed) -> tuple[Action, ...]:
    """Return the actions of a job without pods that bring its Workload to what the job asks for.

    A Workload that holds quota for something else is removed: its pod sets cannot change.
    """
    if observed.settings.kueue != "on" or observed.kueue.missing is not None:
        return ()
    workload = own_workload(observed)
    if workload is None:
        return (*_dry_runs(observed), CreateWorkload(workload_body(observed)))
    if workload["metadata"].get("deletionTimestamp"):
        return ()
    if holds(workload, "Finished"):  # of an end that is none: only a job that has ended says so
        return _delete(workload)
    if holds_quota(workload) and is_evicted(workload):
        return (release(observed, workload),)
    if is_as_asked(observed) and not (holds_quota(workload) and _reclaimed(workload)):
        return ()
    if holds_quota(workload):
        return _delete(workload)
    body = workload_body(observed)
    spec = {"priorityClassRef": None, **body["spec"]}
    return (PatchWorkload({"metadata": {**_exactly(workload), **_annotations(body)}, "spec": spec}),)


def _dry_runs(observed: Observed) -> list[Action]:
    """Return the checks of templates that come before the wait: a template that is refused never trains."""
    firsts = {place.group: place for place in reversed(observed.places)}
    attempt = max(1, observed.attempt)
    return [DryRunPod(group, partial(pod_body, observed, place, attempt)) for group, place in firsts.items()]


def give_back(observed: Observed) -> tuple[Action, ...]:
    """Return the actions that give back the quota of a job that wants no pods and has none.

    The Workload goes, so that Kueue does not admit it again; one that an administrator has deactivated stays so.
    """
    workload = own_workload(observed)
    if observed.settings.kueue != "on" or workload is None or workload["metadata"].get("deletionTimestamp"):
        return ()
    if workload["spec"].get("active") is False:
        evicted = holds_quota(workload) and holds(workload, "Evicted")
        return (release(observed, workload),) if evicted else ()
    return _delete(workload)


def _delete(workload: Body) -> tuple[Action, ...]:
    return (DeleteWorkload(str(workload["metadata"]["uid"])),)


def release(observed: Observed, workload: Body) -> PatchWorkload:
    """Return the action that gives back the quota of an evicted job, as Kueue's own integrations do it."""
    eviction = conditions_of(workload).get("Evicted", {})
    reason, message = str(eviction.get("reason") or "Evicted"), str(eviction.get("message") or "")
    known = conditions_of(workload)
    requeued = "True" if reason in REQUEUED else "False"
    for kind, status, why in (
        ("QuotaReserved", "False", "Pending"),
        ("Admitted", "False", "NoReservation"),
        ("Requeued", requeued, reason),
    ):
        if kind == "Admitted" and kind not in known:
            continue
        known[kind] = _condition(observed, known.get(kind, {}), kind, status, why, message)
    emptied: Body = {"admission": None, "conditions": list(known.values())}
    return PatchWorkload({"metadata": _exactly(workload), "status": emptied}, "status")


def _condition(observed: Observed, old: Body, kind: str, status: str, reason: str, message: str) -> Body:
    moved = old.get("status") != status
    since = stamp(observed.now) if moved else old.get("lastTransitionTime") or stamp(observed.now)
    told = {"type": kind, "status": status, "reason": reason, "message": message[:MOST_MESSAGE]}
    return {**told, "lastTransitionTime": since}


def _exactly(workload: Body) -> Body:
    return {field: workload["metadata"][field] for field in ("uid", "resourceVersion")}


def _annotations(body: Body) -> Body:
    return {"annotations": body["metadata"]["annotations"]}


def _reclaimed(workload: Body) -> bool:
    """Return whether places were given back that the next attempt needs again."""
    return bool((workload.get("status") or {}).get("reclaimablePods"))


# -- what Kueue is told ---------------------------------------------------------------------------------------


def report(observed: Observed, conditions: Conditions) -> tuple[Action, ...]:
    """Return the action that tells Kueue of ready, succeeded and ended ranks; none where it knows all."""
    workload = own_workload(observed)
    if observed.settings.kueue != "on" or workload is None or holds(workload, "Finished"):
        return ()
    wanted = [_ready(conditions), *_finished(observed, conditions)]
    known = conditions_of(workload)
    told = [_condition(observed, known.get(kind, {}), kind, *rest) for kind, *rest in wanted]
    reclaimable = _reclaimable(observed, workload)
    same = all(each["status"] == known.get(each["type"], {}).get("status", "False") for each in told)
    if same and reclaimable == ((workload.get("status") or {}).get("reclaimablePods") or []):
        return ()
    status: Body = {"conditions": told} | ({"reclaimablePods": reclaimable} if reclaimable else {})
    head = {"apiVersion": workload["apiVersion"], "kind": "Workload"}
    metadata = {"name": names.workload_name(observed.name), "namespace": workload["metadata"]["namespace"]}
    metadata["uid"] = workload["metadata"]["uid"]
    return (ReportWorkload({**head, "metadata": metadata, "status": status}),)


def _ready(conditions: Conditions) -> tuple[str, str, str, str]:
    if conditions.holds(PODS_READY):
        return "PodsReady", "True", "Started", "all ranks are ready"
    return "PodsReady", "False", "WaitForStart", "not all ranks are ready"


def _finished(observed: Observed, conditions: Conditions) -> list[tuple[str, str, str, str]]:
    """Return the end of a job; pods that still run hold their quota."""
    if not all(map(ended, observed.own)):
        return []
    for kind, reason in ((SUCCEEDED, "Succeeded"), (FAILED, "Failed")):
        if conditions.holds(kind):
            return [("Finished", "True", reason, str(observed.condition(kind).get("message") or reason))]
    return []


def _reclaimable(observed: Observed, workload: Body) -> list[Body]:
    """Return how many places of each group are free: pods that succeeded; a count never shrinks under a reservation."""
    if not holds_quota(workload):
        return []
    known = {each["name"]: each["count"] for each in (workload.get("status") or {}).get("reclaimablePods") or ()}
    counts = dict(known)
    for group in observed.spec.worker_groups:
        done = sum(
            phase(pod) == "Succeeded" and pod["metadata"]["labels"].get(names.LABEL_GROUP) == group.name
            for pod in observed.current
        )
        if done > counts.get(group.name, 0):
            counts[group.name] = done
    return [{"name": name, "count": count} for name, count in counts.items()]


def kueue_retry(observed: Observed) -> float | None:
    """Return when to try again what Kueue did not take, or what could not be read; its watch brings all else."""
    return RETRY_SECONDS if observed.kueue.missing is not None else refused_retry(observed)


def refused_retry(observed: Observed) -> float | None:
    """Return when to try again what Kueue did not take."""
    return RETRY_SECONDS if observed.refusals else None


# -- what the job shows ---------------------------------------------------------------------------------------


def show_admission(observed: Observed, conditions: Conditions) -> None:
    """Set Admitted to what Kueue says, or to why it cannot be asked."""
    if observed.kueue.unknown:
        return  # it stays as it is
    if not observed.queued:
        conditions.clear(ADMITTED, reasons.ADMITTED)
    elif admitted(observed):
        conditions.set(ADMITTED, True, reasons.ADMITTED)
    else:
        conditions.set(ADMITTED, False, *_why_not(observed))
        if not observed.own and not observed.foreign:
            conditions.clear(RESTARTING, reasons.EVICTED)  # it is in the queue


def _why_not(observed: Observed) -> tuple[str, str]:
    if observed.settings.kueue != "on":
        words = "the operator may not use Kueue: set kueue.enabled of its chart, or runPolicy.gang.admission PodGroup"
        return reasons.KUEUE_OFF, words
    if observed.kueue.missing is not None:
        return observed.kueue.missing
    for subject, refused in sorted(observed.refusals.items()):
        if subject != "Workload":  # a template that a quota or a policy refuses gets no Workload
            reason = reasons.REFUSED_FORBIDDEN if refused.code == 403 else reasons.REFUSED_INVALID
            return reason, f"{subject}: {refused.message}"
    if (refusal := observed.refusals.get("Workload")) is not None:
        return reasons.KUEUE_UNAVAILABLE, f"Workload: {refusal.message}"
    return refusal_of(own_workload(observed))
