"""Deadlines of a job and of its current attempt, and when to look again because of them."""

from heterotp_api import reasons
from heterotp_api.conditions import RESTARTING, RUNNING

from heterotp_operator.reconcile.conditions import was_complete
from heterotp_operator.reconcile.observed import Body, Observed, ended, phase, seconds

SILENCE_SECONDS = 15.0  # a rank 0 that does not answer for so long is shown as unreachable
UNSEEN_SECONDS = 15.0  # a pod that no scheduler has written about for so long is shown as unschedulable


def expired(observed: Observed) -> tuple[str, str] | None:
    """Return reason and message of the deadline that is over; None while there is time."""
    policy = observed.spec.run_policy
    left = _active_left(observed)
    if left is not None and left <= 0:
        return reasons.DEADLINE_EXCEEDED, f"activeDeadlineSeconds {policy.active_deadline_seconds} is over"
    left = _pre_running_left(observed)
    if left is not None and left <= 0:
        words = f"not running within preRunningDeadlineSeconds {policy.pre_running_deadline_seconds}"
        waiting = observed.status.get("waitingFor")
        return reasons.PRE_RUNNING_DEADLINE_EXCEEDED, words + (f"; waited for: {waiting}" if waiting else "")
    return None


def next_deadline(observed: Observed) -> float | None:
    """Return the seconds until a deadline may be over, or until rank 0 or a scheduler counts as silent."""
    return soonest(_active_left(observed), _pre_running_left(observed), _silence_left(observed), _unseen_left(observed))


def soonest(*waits: float | None) -> float | None:
    """Return the shortest wait that is known, at least 0.1 s."""
    known = [max(0.1, wait) for wait in waits if wait is not None]
    return min(known, default=None)


def _active_left(observed: Observed) -> float | None:
    limit, started = observed.spec.run_policy.active_deadline_seconds, seconds(observed.status.get("startTime"))
    return None if limit is None or started is None else started + limit - observed.now


def ran(observed: Observed) -> bool:
    """Return whether the ranks of the current attempt have met; with a trainer, rank 0 must have reported it."""
    running = observed.condition(RUNNING)
    if not was_complete(observed) or running.get("status") != "True":
        return False
    return observed.spec.training is None or running.get("reason") == reasons.RANKS_TRAINING


def _pre_running_left(observed: Observed) -> float | None:
    """Return the seconds in which the current attempt must run; None: no limit, or it ran already."""
    limit = observed.spec.run_policy.pre_running_deadline_seconds
    current = observed.current
    if limit is None or ran(observed) or any(phase(pod) == "Succeeded" for pod in current):
        return None
    if current and all(ended(pod) for pod in current):
        return None
    births = [birth for pod in current if (birth := seconds(pod["metadata"].get("creationTimestamp"))) is not None]
    since = min(births) if births else _began(observed)
    return None if since is None else since + limit - observed.now


def _began(observed: Observed) -> float | None:
    """Return since when an attempt without pods is wanted, in unix seconds."""
    if observed.holds(RESTARTING):
        return seconds(observed.condition(RESTARTING).get("lastTransitionTime"))
    return seconds(observed.status.get("startTime"))


def unseen_since(pod: Body) -> float | None:
    """Return since when a pod waits for a scheduler that has written nothing about it; None: one has."""
    scheduled = any(each["type"] == "PodScheduled" for each in pod.get("status", {}).get("conditions", ()))
    if scheduled or phase(pod) != "Pending" or pod.get("spec", {}).get("nodeName"):
        return None
    return seconds(pod["metadata"].get("creationTimestamp"))


def _unseen_left(observed: Observed) -> float | None:
    lefts = [
        since + UNSEEN_SECONDS - observed.now for pod in observed.current if (since := unseen_since(pod)) is not None
    ]
    return min((left + 0.1 for left in lefts if left >= 0), default=None)


def _silence_left(observed: Observed) -> float | None:
    trainer = observed.trainer
    if trainer is None or trainer.status is not None:
        return None
    left = trainer.since + SILENCE_SECONDS - observed.now
    return left + 0.1 if left >= 0 else None
