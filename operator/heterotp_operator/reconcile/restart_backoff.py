"""Restarts of a gang: whether one follows a failure, whether it counts against backoffLimit, and the next attempt.

A restart follows at once: there is no delay between attempts.
"""

from heterotp_api import reasons
from heterotp_api.conditions import CREATED, RESTARTING

from heterotp_operator.reconcile.actions import BumpAttempt, Decision, Event
from heterotp_operator.reconcile.completion import fail
from heterotp_operator.reconcile.conditions import AT_WORK, Conditions
from heterotp_operator.reconcile.failure import Cause, judge
from heterotp_operator.reconcile.observed import Observed
from heterotp_operator.reconcile.status import status_of


def restart(observed: Observed, cause: Cause) -> Decision:
    """Raise the attempt for the next gang, or fail the job, by its failure rules."""
    policy = observed.spec.run_policy
    ruling = judge(cause, policy.failure_rules, built_in=observed.spec.training is not None)
    if ruling.action == "FailJob":
        return fail(observed, ruling.reason, cause.message)
    counted = ruling.action == "RestartGang"
    if counted and observed.restarts >= policy.backoff_limit:
        words = f"{observed.restarts} restarts, backoffLimit {policy.backoff_limit}; last: {cause.message}"
        return fail(observed, reasons.BACKOFF_LIMIT_EXCEEDED, words)
    return next_attempt(observed, cause.reason, cause.message, counted)


def next_attempt(observed: Observed, reason: str, message: str, counted: bool) -> Decision:
    """Raise the attempt; the pods that are there are old then, and go on the next look."""
    conditions = Conditions(observed)
    conditions.set(RESTARTING, True, reason, message)
    for kind in (CREATED, *AT_WORK):
        conditions.clear(kind, reasons.RESTARTING)
    action, event = bump(observed, observed.restarts + counted), restarted_event(observed.attempt + 1, message)
    return Decision((action,), status_of(observed, conditions, "PodsTerminating"), (event,), 0.0)


def bump(observed: Observed, restarts: int) -> BumpAttempt:
    """Return the action that begins the next attempt, with so many restarts counted."""
    return BumpAttempt(observed.attempt + 1, restarts, str(observed.job["metadata"]["resourceVersion"]))


def restarted_event(attempt: int, message: str) -> Event:
    """Return the event of an attempt that follows another one."""
    return Event("Warning", reasons.GANG_RESTARTED, f"attempt {attempt} follows attempt {attempt - 1}: {message}")
