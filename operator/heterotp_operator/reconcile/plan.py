"""One decision about one job: a ladder of early returns, from what ends it to what keeps it going.

Level-triggered: nothing is remembered between calls, so the operator may be killed after any action. The
attempt is raised before the first pod of it is made and before the first of the one before is deleted; pods of
another attempt are then simply old.
"""

from heterotp_api.load import first_error
from pydantic import ValidationError

from heterotp_operator.reconcile.actions import (
    Action,
    BumpAttempt,
    CreatePod,
    Decision,
    DeleteJob,
    DeletePod,
    DryRunPod,
    Event,
)
from heterotp_operator.reconcile.children import heal
from heterotp_operator.reconcile.conditions import Conditions
from heterotp_operator.reconcile.failure import Cause, find_cause, judge
from heterotp_operator.reconcile.observed import (
    Body,
    Observed,
    ended,
    first_rank_of,
    phase,
    seconds,
    stamp,
    terminating,
)
from heterotp_operator.reconcile.pods import pod_body, template_hash
from heterotp_operator.reconcile.status import is_ready, status_of

__all__ = ["Decision", "plan"]
CONTROLLER = "heterotp.io/operator"
FORCE_AFTER_SECONDS = 30.0  # past a pod's own grace: its node is gone
RETRY_SECONDS = 5.0


def plan(observed: Observed) -> Decision:
    """Return what to do, show and tell about one job now."""
    if observed.job["metadata"].get("deletionTimestamp"):
        return Decision()  # the garbage collector takes the children
    manager = (observed.job["spec"].get("runPolicy") or {}).get("managedBy")
    if manager not in (None, CONTROLLER):
        return Decision()
    try:
        suspended = observed.spec.run_policy.suspend
    except ValidationError as error:
        return _invalid(observed, error)
    if observed.holds("Succeeded") or observed.holds("Failed"):
        return _finished(observed)
    if suspended:
        return _suspend(observed)
    return _expired(observed) or _refused(observed) or _advance(observed)


# -- ends -----------------------------------------------------------------------------------------------------


def _invalid(observed: Observed, error: ValidationError) -> Decision:
    """Fail a job that the schema let pass and the models do not; nothing is made."""
    field, value, message = first_error(error)
    shown = "" if value is None else f" {value!r}"
    conditions = Conditions(observed)
    text = f"spec.{field}:{shown} {message}"
    conditions.set("Failed", True, "InvalidSpec", text)
    status = {
        "observedGeneration": observed.job["metadata"].get("generation", 0),
        "phase": "Failed",
        "conditions": conditions.list(),
        "completionTime": observed.status.get("completionTime") or stamp(observed.now),
    }
    return Decision(status=status, events=_once(observed, "Failed", Event("Warning", "InvalidSpec", text)))


def _once(observed: Observed, condition: str, event: Event) -> tuple[Event, ...]:
    return () if observed.holds(condition) else (event,)


def _fail(observed: Observed, reason: str, message: str) -> Decision:
    """End the job as failed; its pods go by cleanPodPolicy on the next look."""
    conditions = Conditions(observed)
    conditions.set("Failed", True, reason, message)
    _at_rest(conditions, reason)
    status = status_of(observed, conditions)
    return Decision(_clean(observed), status, (Event("Warning", reason, message),), 0.0)


def _at_rest(conditions: Conditions, reason: str) -> None:
    for kind in ("PodsReady", "Running", "Restarting"):
        conditions.clear(kind, reason)


def _finished(observed: Observed) -> Decision:
    """Clean up by cleanPodPolicy, and remove the job when its time after the end is over."""
    ttl = observed.spec.run_policy.ttl_seconds_after_finished
    since = seconds(observed.status.get("completionTime"))
    actions = _clean(observed)
    if ttl is None or since is None:
        return Decision(actions, requeue_after=_force_later(observed))
    left = since + ttl - observed.now
    if left > 0:
        return Decision(actions, requeue_after=left)
    version = str(observed.job["metadata"]["resourceVersion"])
    return Decision((*actions, DeleteJob(observed.uid, version)))


def _clean(observed: Observed) -> tuple[Action, ...]:
    policy = observed.spec.run_policy.clean_pod_policy
    if policy == "None":
        return ()
    pods = [pod for pod in observed.own if policy == "All" or not ended(pod)]
    return _delete(observed, pods)


def _delete(observed: Observed, pods: list[Body]) -> tuple[Action, ...]:
    """Delete pods; one that terminates longer than its grace allows has lost its node and is forced."""
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


def _force_later(observed: Observed) -> float | None:
    """Return the seconds until the first terminating pod is forced; None when none terminates."""
    times = [_force_at(pod) - observed.now for pod in observed.pods if terminating(pod)]
    return max(0.1, min(times) + 0.1) if times else None


def _expired(observed: Observed) -> Decision | None:
    """Fail a job whose deadline is over."""
    policy = observed.spec.run_policy
    started = seconds(observed.status.get("startTime"))
    limit = policy.active_deadline_seconds
    if limit is not None and started is not None and observed.now >= started + limit:
        return _fail(observed, "DeadlineExceeded", f"activeDeadlineSeconds {limit} is over")
    left = _pre_running_left(observed)
    if left is not None and left <= 0:
        words = f"not running within preRunningDeadlineSeconds {policy.pre_running_deadline_seconds}"
        return _fail(observed, "PreRunningDeadlineExceeded", words)
    return None


def _pre_running_left(observed: Observed) -> float | None:
    """Return the seconds in which the current attempt must run; None: no limit, or it ran already."""
    limit = observed.spec.run_policy.pre_running_deadline_seconds
    births = [seconds(pod["metadata"].get("creationTimestamp")) for pod in observed.current]
    known = [birth for birth in births if birth is not None]
    if limit is None or not known or all(is_ready(pod) or ended(pod) for pod in observed.current):
        return None
    return min(known) + limit - observed.now


def _refused(observed: Observed) -> Decision | None:
    """Fail a job whose template the API server does not take; its own words say why."""
    for group, (code, message) in sorted(observed.refusals.items()):
        if code in (400, 422):
            return _fail(observed, "InvalidPodTemplate", f"workerGroups {group}: template: {message}")
    return None


# -- suspension -----------------------------------------------------------------------------------------------


def _suspend(observed: Observed) -> Decision:
    """Remove all pods; the attempt is raised first, so that resuming only has to make the next one's pods."""
    actions: list[Action] = []
    if observed.current:
        actions.append(_bump(observed, observed.restarts))
    actions += _delete(observed, list(observed.own))
    conditions = Conditions(observed)
    gone = not observed.own
    conditions.set("Suspended", gone, "Suspended" if gone else "PodsTerminating")
    for kind in ("Created", "PodsReady", "Running", "Restarting"):
        conditions.clear(kind, "Suspended")
    events = _once(observed, "Suspended", Event("Normal", "Suspended", "all pods are gone")) if gone else ()
    waiting = "" if gone else "PodsTerminating"
    return Decision(tuple(actions), status_of(observed, conditions, waiting), events, _force_later(observed))


def _bump(observed: Observed, restarts: int) -> BumpAttempt:
    return BumpAttempt(observed.attempt + 1, restarts, str(observed.job["metadata"]["resourceVersion"]))


# -- the gang -------------------------------------------------------------------------------------------------


def _advance(observed: Observed) -> Decision:
    """Start the job, restart its gang, or watch it run."""
    if observed.current:
        cause, wait = find_cause(observed, _was_complete(observed))
        if cause is not None:
            return _restart(observed, cause)
        if len(observed.current) == len(observed.places) and all(phase(p) == "Succeeded" for p in observed.current):
            return _succeed(observed)
        if wait is not None:
            return _watch(observed, (), wait)
    leftovers = [*observed.old, *observed.foreign]
    if leftovers:
        return _watch(observed, _delete(observed, list(observed.old)), _force_later(observed) or RETRY_SECONDS)
    return _make(observed)


def _created_message(observed: Observed, attempt: int) -> str:
    """Name the attempt whose pods were all made: this is how a pod that was taken away is told from one to come."""
    return f"all {len(observed.places)} pods of attempt {attempt} were made"


def _was_complete(observed: Observed) -> bool:
    created = observed.condition("Created")
    return observed.holds("Created") and created.get("message") == _created_message(observed, observed.attempt)


def _restart(observed: Observed, cause: Cause) -> Decision:
    """Raise the attempt for the next gang, or fail the job, as its rules say."""
    policy = observed.spec.run_policy
    verdict = judge(cause, policy.failure_rules)
    if verdict == "FailJob":
        return _fail(observed, "FailureRule", cause.message)
    counted = verdict == "RestartGang"
    if counted and observed.restarts >= policy.backoff_limit:
        words = f"{observed.restarts} restarts, backoffLimit {policy.backoff_limit}; last: {cause.message}"
        return _fail(observed, "BackoffLimitExceeded", words)
    conditions = Conditions(observed)
    conditions.set("Restarting", True, cause.reason, cause.message)
    for kind in ("Created", "PodsReady", "Running"):
        conditions.clear(kind, "Restarting")
    words = f"attempt {observed.attempt + 1} follows attempt {observed.attempt}: {cause.message}"
    bump = _bump(observed, observed.restarts + counted)
    event = Event("Warning", "GangRestarted", words)
    return Decision((bump,), status_of(observed, conditions, "PodsTerminating"), (event,), 0.0)


def _succeed(observed: Observed) -> Decision:
    conditions = Conditions(observed)
    conditions.set("Succeeded", True, "AllRanksSucceeded", "every rank ended with exit code 0")
    _at_rest(conditions, "AllRanksSucceeded")
    event = Event("Normal", "Succeeded", "every rank ended with exit code 0")
    return Decision(_clean(observed), status_of(observed, conditions), (event,), 0.0)


def _make(observed: Observed) -> Decision:
    """Make what is missing of the current attempt; all of it, for a new one."""
    here = {first_rank_of(pod) for pod in observed.current}
    missing = [place for place in observed.places if place.first_rank not in here]
    attempt = max(1, observed.attempt)
    actions: list[Action] = []
    if missing and not observed.current:
        firsts = {place.group: place for place in reversed(observed.places)}
        actions += [DryRunPod(group, pod_body(observed, place, attempt)) for group, place in firsts.items()]
    if observed.attempt == 0:
        actions.append(_bump(observed, 0))
    actions += heal(observed, attempt)
    actions += [CreatePod(pod_body(observed, place, attempt)) for place in missing]
    wait = RETRY_SECONDS if observed.refusals else None
    return _watch(observed, tuple(actions), wait)


def _watch(observed: Observed, actions: tuple[Action, ...], wait: float | None) -> Decision:
    """Show how far the gang has come."""
    conditions = Conditions(observed)
    conditions.clear("Suspended", "Resumed")
    complete = len(observed.current) == len(observed.places)
    ready = complete and all(is_ready(pod) or phase(pod) == "Succeeded" for pod in observed.current)
    if complete:
        conditions.set("Created", True, "GangCreated", _created_message(observed, observed.attempt))
        stale = [p for p in observed.current if _frozen_hash(p) != template_hash(observed)]
        words = "the template changed; it takes effect with the next attempt"
        if stale:
            conditions.set("SpecChangePending", True, "TemplateChanged", words)
        else:
            conditions.clear("SpecChangePending", "TemplateInForce")
    if ready:
        conditions.set("PodsReady", True, "AllPodsReady")
        conditions.set("Running", True, "AllPodsReady")
        conditions.clear("Restarting", "GangRunning")
    else:
        conditions.clear("PodsReady", "PodNotReady")
    events: tuple[Event, ...] = ()
    if ready and not observed.holds("Running"):
        words = f"attempt {observed.attempt} runs with {observed.spec.process_count} ranks"
        events = (Event("Normal", "GangRunning", words),)
    return Decision(actions, status_of(observed, conditions), events, _soonest(wait, _next_deadline(observed)))


def _frozen_hash(pod: Body) -> str:
    return str(pod["metadata"]["labels"].get("heterotp.io/template-hash", ""))


def _next_deadline(observed: Observed) -> float | None:
    """Return the seconds until a deadline may be over."""
    policy = observed.spec.run_policy
    started = seconds(observed.status.get("startTime"))
    active = None
    if policy.active_deadline_seconds is not None and started is not None:
        active = started + policy.active_deadline_seconds - observed.now
    return _soonest(active, _pre_running_left(observed))


def _soonest(*waits: float | None) -> float | None:
    known = [max(0.1, wait) for wait in waits if wait is not None]
    return min(known, default=None)
