"""How a job ends, and what becomes of its pods then.

The status shows the end before the first pod is deleted: an operator that was killed in between would otherwise
take the pods that it deleted itself for pods that failed.
"""

from heterotp_api import reasons
from heterotp_api.conditions import FAILED, RESTARTING, SPEC_CHANGE_PENDING, SUCCEEDED

from heterotp_operator.reconcile.actions import COUNTERS, MOST_PODS, Action, Decision, DeleteJob, DeletePod, Event
from heterotp_operator.reconcile.conditions import AT_WORK, MAX_MESSAGE, Conditions
from heterotp_operator.reconcile.deadlines import soonest
from heterotp_operator.reconcile.network_policy import remove_network_policy
from heterotp_operator.reconcile.observed import Body, Observed, SpecError, ended, seconds, stamp, terminating
from heterotp_operator.reconcile.queueing import give_back, refused_retry, report
from heterotp_operator.reconcile.status import status_of

DEFAULT_GRACE_SECONDS = 30.0  # of a pod that names none
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


def invalid(observed: Observed, error: SpecError) -> Decision:
    """Fail a job that the schema accepts and the models do not, naming field path, value and what would be right."""
    field, value, message = error
    if observed.holds(SUCCEEDED):
        return Decision()
    if observed.holds(FAILED):
        running = [pod for pod in observed.own if not ended(pod)]
        back = () if running else give_back(observed)
        return Decision((*delete(observed, running), *back), requeue_after=force_later(observed))
    where = "" if field is None else f"spec.{field}: " if field else "spec "
    text = f"{where}{'' if value is None else f'{value!r:.80} '}{message}"[:MAX_MESSAGE]
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
    actions = (*_clean(observed), *remove_network_policy(observed))
    ttl = observed.spec.run_policy.ttl_seconds_after_finished
    since = seconds(observed.status.get("completionTime"))
    left = None if ttl is None or since is None else since + ttl - observed.now
    if left is not None and left <= 0:
        return Decision((*actions, DeleteJob(observed.uid, str(observed.job["metadata"]["resourceVersion"]))))
    conditions = Conditions(observed)
    status = status_of(observed, conditions, "")
    if observed.asked.run_policy.gang.makes_workload:
        actions += report(observed, conditions)
    else:
        actions += give_back(observed)  # of a queue that the job has left while it was suspended
    return Decision(actions, status, requeue_after=soonest(left, force_later(observed), refused_retry(observed)))


def _clean(observed: Observed) -> tuple[Action, ...]:
    """Delete pods by cleanPodPolicy; pods of earlier attempts are always deleted."""
    policy = observed.spec.run_policy.clean_pod_policy
    pods = list(observed.old)
    if policy != "None":
        pods += [pod for pod in observed.current if policy == "All" or not ended(pod)]
    return delete(observed, pods)


def delete(observed: Observed, pods: list[Body]) -> tuple[Action, ...]:
    """Delete pods; a pod that terminates for longer than its grace has lost its node: its deletion is forced.

    The time counts from when this process first saw the pod terminate: the clocks of other machines may be wrong, and
    two pods of one gang would write the same checkpoint.
    """
    actions: list[Action] = []
    for pod in pods:
        if len(actions) == MOST_PODS:
            break
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        if not terminating(pod):
            actions.append(DeletePod(name, uid))
        elif _force_left(observed, pod) < 0:
            actions.append(DeletePod(name, uid, grace_seconds=0))
    return tuple(actions)


def _force_left(observed: Observed, pod: Body) -> float:
    """Return the seconds until a terminating pod is forced."""
    grace = pod["metadata"].get("deletionGracePeriodSeconds")
    if grace is None:
        grace = pod.get("spec", {}).get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
    return float(grace) + FORCE_AFTER_SECONDS - observed.terminating_for.get(pod["metadata"]["uid"], 0.0)


def force_later(observed: Observed) -> float | None:
    """Return the seconds until the first terminating pod is forced; None when none terminates."""
    times = [_force_left(observed, pod) for pod in observed.own if terminating(pod)]
    return max(1.0, min(times) + 0.1) if times else None
