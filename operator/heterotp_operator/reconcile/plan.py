"""One decision about one job: a ladder of early returns, from what ends a job to what keeps it running.

Level-triggered: nothing is remembered between calls, so the operator may be killed after any action. The attempt is
raised before the first of its pods is made and before the first pod of the earlier attempt is deleted: pods of another
attempt are old by their label.
"""

from functools import partial

from heterotp_api import names, reasons
from heterotp_api.conditions import (
    ADMITTED,
    CREATED,
    FAILED,
    PODS_READY,
    RESTARTING,
    RUNNING,
    SPEC_CHANGE_PENDING,
    SUCCEEDED,
    SUSPENDED,
)
from heterotp_api.template import template_error

from heterotp_operator.reconcile.actions import MOST_PODS, Action, CreatePod, Decision, DryRunPod, Event
from heterotp_operator.reconcile.children import ensure_children
from heterotp_operator.reconcile.completion import delete, fail, finished, force_later, invalid, succeed
from heterotp_operator.reconcile.conditions import AT_WORK, Conditions, was_complete
from heterotp_operator.reconcile.deadlines import expired, next_deadline, ran, soonest
from heterotp_operator.reconcile.failure import earlier_cause, find_cause
from heterotp_operator.reconcile.kueue.admission import refusal_of
from heterotp_operator.reconcile.network_policy import remove_network_policy
from heterotp_operator.reconcile.objects import is_ours
from heterotp_operator.reconcile.observed import Observed, first_rank_of, phase, secret_id_of
from heterotp_operator.reconcile.pods import pod_body
from heterotp_operator.reconcile.progress import hung
from heterotp_operator.reconcile.queueing import (
    admitted,
    give_back,
    is_taken_back,
    kueue_retry,
    own_workload,
    refused_retry,
    report,
    request,
    show_admission,
)
from heterotp_operator.reconcile.restart_backoff import bump, next_attempt, restart, restarted_event
from heterotp_operator.reconcile.stall import show_stall
from heterotp_operator.reconcile.status import is_ready, status_of
from heterotp_operator.reconcile.stragglers import show_stragglers

__all__ = ["Decision", "plan"]
RETRY_SECONDS = 5.0
REFUSED = {
    400: reasons.REFUSED_INVALID,
    403: reasons.REFUSED_FORBIDDEN,
    404: reasons.GANG_SCHEDULER_MISSING,
    409: reasons.NAME_TAKEN,
    422: reasons.REFUSED_INVALID,
}
API_SERVER_REASONS = ("Invalid", "BadRequest")  # of its own refusals; a webhook's denial has another reason, or none
HINTS = {
    404: " (runPolicy.gang.provider: the kind of that scheduler is not installed in this cluster)",
    409: " (rename the job or the other object)",
}


def plan(observed: Observed) -> Decision:
    """Return the actions, the status and the events of one job now."""
    if observed.job["metadata"].get("deletionTimestamp"):
        return Decision()  # the garbage collector takes the children
    if not is_ours(observed.job):
        return Decision()
    if observed.spec_error is not None:
        return invalid(observed, observed.spec_error)
    if observed.holds(SUCCEEDED) or observed.holds(FAILED):
        return finished(observed)
    if observed.spec.run_policy.suspend:
        return _suspend(observed)
    return _expired(observed) or _refused(observed) or _advance(observed)


def _expired(observed: Observed) -> Decision | None:
    """Fail a job whose deadline is over."""
    over = expired(observed)
    return None if over is None else fail(observed, *over)


def _refused(observed: Observed) -> Decision | None:
    """Fail a job whose pod template the API server refuses, with its message."""
    groups = {group.name for group in observed.spec.worker_groups}
    for subject, refusal in sorted(observed.refusals.items()):
        if subject in groups and refusal.reason in API_SERVER_REASONS:  # a webhook may accept it later
            return fail(observed, reasons.INVALID_POD_TEMPLATE, f"workerGroups {subject}: template: {refusal.message}")
    return None


# -- suspension -----------------------------------------------------------------------------------------------


def _suspend(observed: Observed) -> Decision:
    """Remove all pods; the attempt is raised first, so that resuming only has to make the next one's pods."""
    actions: list[Action] = []
    if observed.current:
        actions.append(bump(observed, observed.restarts))
    actions += [*delete(observed, list(observed.own)), *remove_network_policy(observed)]
    conditions, gone = Conditions(observed), not observed.own
    if gone:
        actions += give_back(observed)
    conditions.set(
        SUSPENDED, gone, reasons.SUSPENDED if gone else reasons.PODS_TERMINATING, "runPolicy.suspend is true"
    )
    for kind in (ADMITTED, CREATED, *AT_WORK, RESTARTING, SPEC_CHANGE_PENDING):
        conditions.clear(kind, reasons.SUSPENDED)
    news = gone and not observed.holds(SUSPENDED)
    events = (Event("Normal", reasons.SUSPENDED, "runPolicy.suspend is true; all pods are gone"),) if news else ()
    status = status_of(observed, conditions, "" if gone else "PodsTerminating")
    return Decision(tuple(actions), status, events, soonest(force_later(observed), refused_retry(observed)))


# -- the gang -------------------------------------------------------------------------------------------------


def _advance(observed: Observed) -> Decision:
    """Start the job, restart its gang, or watch it run."""
    wait = None
    if observed.current or was_complete(observed):
        if _trained(observed):
            return succeed(observed)
        if observed.current and is_taken_back(observed):
            return next_attempt(observed, reasons.EVICTED, _eviction(observed), False)
        cause, wait = find_cause(observed, was_complete(observed))
        if cause is not None:
            return restart(observed, cause)
        if wait is not None:
            return _watch(observed, (), wait)
        cause, wait = hung(observed)
        if cause is not None:
            return restart(observed, cause)
    if observed.old or observed.foreign:
        actions = delete(observed, [*observed.old, *observed.left_behind])
        return _watch(observed, actions, soonest(force_later(observed), RETRY_SECONDS))
    return (_wait_for_kueue(observed) if observed.queued else None) or _make(observed, wait)


def _wait_for_kueue(observed: Observed) -> Decision | None:
    """Ask Kueue for the gang's places; None: they are admitted."""
    if not observed.current and (wrong := template_error(observed.spec)) is not None:
        return fail(observed, reasons.INVALID_SPEC, wrong)
    asked = () if observed.current else request(observed)
    if asked or not admitted(observed) or observed.kueue.missing is not None:
        return _watch(observed, asked, kueue_retry(observed))
    return None


def _eviction(observed: Observed) -> str:
    """Return the words for a gang whose admission is gone."""
    if own_workload(observed) is None:
        return "the Workload is gone"
    return f"Kueue takes the place back: {': '.join(refusal_of(observed.kueue.workload))}"


def _trained(observed: Observed) -> bool:
    """Return whether all ranks are done: all pods succeeded, or those left did and rank 0 reported the end."""
    if not observed.current or any(phase(pod) != "Succeeded" for pod in observed.current):
        return False
    reported = observed.trainer_status is not None and observed.trainer_status.state == "succeeded"
    return reported or len(observed.current) == len(observed.places)


def _make(observed: Observed, later: float | None) -> Decision:
    """Make the missing pods and children of the current attempt; later: seconds after which to look in any case."""
    here = {first_rank_of(pod) for pod in observed.current}
    missing = [place for place in observed.places if place.first_rank not in here]
    if missing and (wrong := template_error(observed.spec)) is not None:
        return fail(observed, reasons.INVALID_SPEC, wrong)
    shape_changed, stale = _changed(observed)
    if shape_changed:
        return next_attempt(observed, reasons.SPEC_CHANGED, "the job was suspended, changed and resumed unseen", False)
    if missing and stale:  # a gang is never made of two templates
        return next_attempt(observed, reasons.TEMPLATE_CHANGED, "the template changed before all pods were made", False)
    if missing and any(secret_id_of(pod) != observed.secret_id for pod in observed.current):
        words = "the operator's key changed before all pods were made"
        return next_attempt(observed, reasons.SECRET_CHANGED, words, False)
    attempt = max(1, observed.attempt)
    actions: list[Action] = []
    if missing and not observed.current and not observed.is_accepted:
        firsts = {place.group: place for place in reversed(observed.places)}
        actions += [DryRunPod(group, partial(pod_body, observed, place, attempt)) for group, place in firsts.items()]
    if observed.attempt == 0:
        actions.append(bump(observed, 0))
    actions += ensure_children(observed, attempt)
    pods = missing[:MOST_PODS]
    actions += [CreatePod(place.group, partial(pod_body, observed, place, attempt)) for place in pods]
    wait = RETRY_SECONDS if observed.refusals else None
    return _watch(observed, tuple(actions), soonest(wait, later))


def _changed(observed: Observed) -> tuple[bool, bool]:
    """Return whether the gang's shape differs from the job's, and whether anything that an attempt freezes does."""
    wanted = list(observed.hashes)
    made = [pod["metadata"]["labels"].get(names.LABEL_TEMPLATE_HASH, "").split(".") for pod in observed.current]
    return any(hashes[0] != wanted[0] for hashes in made), any(hashes != wanted for hashes in made)


# -- showing how far the gang has come ------------------------------------------------------------------------


def _watch(observed: Observed, actions: tuple[Action, ...], wait: float | None) -> Decision:
    """Show how far the gang has come."""
    conditions = Conditions(observed)
    conditions.clear(SUSPENDED, reasons.RESUMED)
    events = _forget_earlier_attempt(observed, conditions)
    complete = len(observed.current) == len(observed.places)
    events += _show_created(observed, conditions, complete)
    _show_template(observed, conditions)
    if complete and all(is_ready(pod) or phase(pod) == "Succeeded" for pod in observed.current):
        conditions.set(PODS_READY, True, reasons.ALL_PODS_READY)
        trainer = observed.trainer_status  # its message while it goes on: a checkpoint that cannot be written
        words = observed.condition(RUNNING).get("message", "") if trainer is None else trainer.message
        conditions.set(RUNNING, True, reasons.RANKS_TRAINING if _ranks_met(observed) else reasons.ALL_PODS_READY, words)
        conditions.clear(RESTARTING, reasons.GANG_RUNNING)
        events += show_stall(observed, conditions)
        events += show_stragglers(observed, conditions)
    else:
        conditions.clear(PODS_READY, reasons.POD_NOT_READY)
    show_admission(observed, conditions)
    if observed.queued:
        actions += report(observed, conditions)
    elif not observed.asked.run_policy.gang.makes_workload and not observed.old:
        actions += give_back(observed)  # of a queue that the job has left while it was suspended
    if conditions.holds(RUNNING) and not (observed.holds(RUNNING) and was_complete(observed)):
        words = f"attempt {observed.attempt} runs with {observed.spec.process_count} ranks"
        events += (Event("Normal", reasons.GANG_RUNNING, words),)
    return Decision(actions, status_of(observed, conditions), events, soonest(wait, next_deadline(observed)))


def _show_created(observed: Observed, conditions: Conditions, complete: bool) -> tuple[Event, ...]:
    """Set Created: all pods were made, or the child that the API server refuses and its message."""
    if complete:
        words = f"all {len(observed.places)} pods of attempt {observed.attempt} were made"
        conditions.set(CREATED, True, reasons.GANG_CREATED, words)
        return ()
    if observed.foreign:
        pods = ", ".join(pod["metadata"]["name"] for pod in observed.foreign)
        words = f"waits until the pods of an earlier job of this name are gone: {pods}"
        conditions.set(CREATED, False, reasons.PODS_TERMINATING, words)
        return ()
    if not observed.refusals:
        return ()
    subject, refusal = min(observed.refusals.items(), key=lambda item: item[0])
    reason, words = (
        REFUSED.get(refusal.code, reasons.KUEUE_UNAVAILABLE),
        f"{subject}: {refusal.message}{HINTS.get(refusal.code, '')}",
    )
    news = observed.condition(CREATED).get("reason") != reason
    conditions.set(CREATED, False, reason, words)
    return (Event("Warning", reason, words),) if news else ()


def _forget_earlier_attempt(observed: Observed, conditions: Conditions) -> tuple[Event, ...]:
    """Clear what holds for another attempt only: the operator was killed before it wrote that."""
    if was_complete(observed):
        return ()
    before = [kind for kind in (CREATED, *AT_WORK) if conditions.holds(kind)]
    events: tuple[Event, ...] = ()
    if before and not conditions.holds(RESTARTING):
        cause = earlier_cause(observed)
        reason, message = (cause.reason, cause.message) if cause else (reasons.GANG_RESTARTED, "its pods are gone")
        conditions.set(RESTARTING, True, reason, message)
        events = (restarted_event(observed.attempt, message),)
    for kind in before:
        conditions.clear(kind, reasons.RESTARTING)
    return events


def _show_template(observed: Observed, conditions: Conditions) -> None:
    if _changed(observed)[1]:
        words = "the template, or the operator's default image, changed; it takes effect with the next attempt"
        conditions.set(SPEC_CHANGE_PENDING, True, reasons.TEMPLATE_CHANGED, words)
    else:
        conditions.clear(SPEC_CHANGE_PENDING, reasons.TEMPLATE_IN_FORCE)


def _ranks_met(observed: Observed) -> bool:
    """Return whether rank 0 has reported in this attempt that its ranks have met."""
    if ran(observed):
        return True
    return observed.trainer_status is not None and observed.trainer_status.state != "starting"
