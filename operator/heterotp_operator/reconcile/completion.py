"""How a job ends, and what becomes of its pods then.

The status shows the end before the first pod is deleted: an operator that was killed in between would otherwise
take the pods that it deleted itself for pods that failed.
"""

from typing import Any

from heterotp_api import reasons
from heterotp_api.conditions import FAILED, RESTARTING, SPEC_CHANGE_PENDING, SUCCEEDED

from heterotp_operator.reconcile.actions import COUNTERS, Action, Decision, DeleteJob, DeletePod, Event
from heterotp_operator.reconcile.conditions import AT_WORK, Conditions
from heterotp_operator.reconcile.deadlines import soonest
from heterotp_operator.reconcile.observed import Body, Observed, ended, seconds, stamp, terminating
from heterotp_operator.reconcile.status import status_of

FORCE_AFTER_SECONDS = 30.0  # past a pod's own grace: its node is gone


def fail(observed: Observed, reason: str, message: str) -> Decision:
    """End the job as failed; its pods go by cleanPodPolicy on the next look."""
    conditions = Conditions(observed)
    conditions.set(FAILED, True, reason, message)
    _at_rest(conditions, reason)
    return Decision((), status_of(observed, conditions), (Event("Warning", reason, message),), 0.0)


def succeed(observed: Observed) -> Decision:
    """End the job as succeeded."""
    conditions, words = Conditions(observed), "every rank ended with exit code 0"
    conditions.set(SUCCEEDED, True, reasons.ALL_RANKS_SUCCEEDED, words)
    _at_rest(conditions, reasons.ALL_RANKS_SUCCEEDED)
    return Decision((), status_of(observed, conditions), (Event("Normal", reasons.SUCCEEDED, words),), 0.0)


def _at_rest(conditions: Conditions, reason: str) -> None:
    for kind in (*AT_WORK, RESTARTING, SPEC_CHANGE_PENDING):
        conditions.clear(kind, reason)


def invalid(observed: Observed, error: tuple[str, Any, str]) -> Decision:
    """Fail a job that the schema accepts and the models do not, naming field path, value and what would be right."""
    field, value, message = error
    if observed.holds(SUCCEEDED):
        return Decision()
    if observed.holds(FAILED):
        running = [pod for pod in observed.own if not ended(pod)]
        return Decision(delete(observed, running), requeue_after=force_later(observed))
    text = f"spec.{field}: " + ("" if value is None else f"{value!r} ") + message
    conditions = Conditions(observed)
    conditions.set(FAILED, True, reasons.INVALID_SPEC, text)
    _at_rest(conditions, reasons.INVALID_SPEC)
    status = {name: value for name, value in observed.status.items() if name not in COUNTERS}
    status |= {
        "observedGeneration": observed.job["metadata"].get("generation", 0),
        "phase": FAILED,
        "conditions": conditions.list(),
        "waitingFor": "",
        "completionTime": stamp(observed.now),
    }
    return Decision((), status, (Event("Warning", reasons.INVALID_SPEC, text),), 0.0)


def finished(observed: Observed) -> Decision:
    """Clean up by cleanPodPolicy, and remove the job when its time after the end is over."""
    actions = _clean(observed)
    ttl = observed.spec.run_policy.ttl_seconds_after_finished
    since = seconds(observed.status.get("completionTime"))
    left = None if ttl is None or since is None else since + ttl - observed.now
    if left is not None and left <= 0:
        return Decision((*actions, DeleteJob(observed.uid, str(observed.job["metadata"]["resourceVersion"]))))
    status = status_of(observed, Conditions(observed), "")
    return Decision(actions, status, requeue_after=soonest(left, force_later(observed)))


def _clean(observed: Observed) -> tuple[Action, ...]:
    """Delete pods by cleanPodPolicy; pods of earlier attempts are always deleted."""
    policy = observed.spec.run_policy.clean_pod_policy
    pods = list(observed.old)
    if policy != "None":
        pods += [pod for pod in observed.current if policy == "All" or not ended(pod)]
    return delete(observed, pods)


def delete(observed: Observed, pods: list[Body]) -> tuple[Action, ...]:
    """Delete pods; a pod that terminates for longer than its grace has lost its node: its deletion is forced."""
    actions: list[Action] = []
    for pod in pods:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        if not terminating(pod):
            actions.append(DeletePod(name, uid))
        elif observed.now > _force_at(pod):
            actions.append(DeletePod(name, uid, grace_seconds=0))
    return tuple(actions)


def _force_at(pod: Body) -> float:
    # deletionTimestamp is when the grace ends, not when the deletion was asked for
    return (seconds(pod["metadata"].get("deletionTimestamp")) or 0.0) + FORCE_AFTER_SECONDS


def force_later(observed: Observed) -> float | None:
    """Return the seconds until the first terminating pod is forced; None when none terminates."""
    times = [_force_at(pod) - observed.now for pod in observed.own if terminating(pod)]
    return max(1.0, min(times) + 0.1) if times else None
