"""Whether a gang hangs that does not end itself: no iteration for longer than the deadline, and no known reason.

Ranks end a gang that stalls past runPolicy.progressDeadlineSeconds themselves, and leave out what they know a reason
for (a checkpoint, an evaluation). The operator acts PATIENCE_SECONDS later, on a gang whose ranks cannot: one that
reports a stall, one whose rank 0 answers without one, because its heartbeats have ended, and always reports the same
iteration, and one whose rank 0 has answered in this pod and does not answer any more.
"""

import math

from heterotp_api import reasons
from heterotp_api.formatting import ranks_listed

from heterotp_operator.reconcile.deadlines import ran
from heterotp_operator.reconcile.failure import Cause
from heterotp_operator.reconcile.observed import Observed, phase, terminating

PATIENCE_SECONDS = 60.0  # past the deadline: the ranks' own end comes first
LEAST_DEADLINE_SECONDS = 300.0
DEADLINE_ITERATIONS = 10
LONGEST_ITERATION_SECONDS = 86_400.0  # of a report that is believed
MAX_WHERE = 512  # characters of what rank 0 reports


def deadline_seconds(observed: Observed) -> float:
    """Return the seconds without an iteration after which the ranks end the gang."""
    given = observed.spec.run_policy.progress_deadline_seconds
    if given is not None:
        return float(given)
    trainer = observed.trainer_status
    median = 0.0 if trainer is None else trainer.iteration_seconds or 0.0
    usual = min(median, LONGEST_ITERATION_SECONDS) if math.isfinite(median) else 0.0
    return max(LEAST_DEADLINE_SECONDS, DEADLINE_ITERATIONS * usual)


def hung(observed: Observed) -> tuple[Cause | None, float | None]:
    """Return why a gang that hangs is restarted, else None and the seconds after which it may be."""
    whole = len(observed.current) == len(observed.places) and ran(observed)
    if not whole or any(phase(pod) != "Running" or terminating(pod) for pod in observed.current):
        return None, None
    seconds = _without_progress(observed)
    if seconds is None:
        return None, None
    left = deadline_seconds(observed) + PATIENCE_SECONDS - seconds
    if left > 0:
        return None, left
    leader = observed.pod_of.get(0)
    name = str(leader["metadata"]["name"]) if leader is not None else observed.name
    return Cause(name, reasons.NO_PROGRESS, _words(observed, seconds)), None


def _without_progress(observed: Observed) -> float | None:
    """Return for how many seconds the gang has made no progress without a known reason; None: it makes progress."""
    report, seen, trainer = observed.trainer, observed.progress, observed.trainer_status
    if report is None or seen is None:
        return None
    if report.failure == "NoAnswer":
        return None if seen.cut_off else seen.silent
    if trainer is None or trainer.state != "running":
        return None
    if trainer.stalled_seconds is not None:
        return max(_finite(trainer.stalled_seconds), seen.idle)
    return min(_finite(trainer.idle_seconds), seen.idle) if trainer.idle_seconds is not None else None


def _finite(seconds: float) -> float:
    return seconds if math.isfinite(seconds) else 0.0


def _words(observed: Observed, seconds: float) -> str:
    trainer = observed.trainer_status
    if trainer is None:
        return f"rank 0 has not answered for {seconds:.0f} s, and its pod runs"
    ranks = f"; the others wait for {ranks_listed(sorted(set(trainer.stalled_by)))}" if trainer.stalled_by else ""
    where = "".join(each if each.isprintable() else " " for each in trainer.stall[:MAX_WHERE]).strip()
    words = f"no iteration for {seconds:.0f} s after iteration {trainer.iteration}{ranks}"
    return f"{words}; rank 0 reports: {where}" if where else words
