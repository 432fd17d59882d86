"""How far a change has come, decided from the objects of a cluster or from a run's status. Pure.

`before` and `now` are the job as it was before the change and as it is now; `passed` is in seconds since the change.
"""

from heterotp_api.reasons import CONTROL_REFUSED

from heterotp_cli.verbs.target import STALE_SECONDS, ChangeStatus
from heterotp_cli.verbs.view import JobView

APPLIED_PHASES = ("Injecting", "Finished", "Paused")  # phases of an injection that the ranks have applied
NOT_TAKEN_UP = "the operator has not taken it up: does it run?"


def refusal(now: JobView, wanted: int, passed: float) -> ChangeStatus | None:
    """Return that the ranks refused the control document of generation `wanted` or a later one, else None.

    A refused document without a generation counts only after STALE_SECONDS.
    """
    if now.problem_reason != CONTROL_REFUSED:
        return None
    refused = now.problem_generation
    counts = passed >= STALE_SECONDS if refused is None else refused >= wanted
    return ChangeStatus("refused", now.problem) if counts else None


def not_running(now: JobView) -> ChangeStatus | None:
    """Return the status of a change of a job that does not run: applied later or never; None while it runs."""
    if now.running:
        return None
    if now.ended:
        return ChangeStatus("refused", f"the job has ended ({now.state})")
    state = now.state or "not seen by the operator"
    return ChangeStatus("later", f"takes effect as soon as the job runs; it is {state} now")


def rollout(now: JobView, wanted: int, source: str) -> ChangeStatus:
    """Return whether all ranks follow generation `wanted` of the control document; source: e.g. `the file holds`."""
    applied = now.applied_generation or 0
    if applied >= wanted:
        return ChangeStatus("in force")
    return ChangeStatus("pending", f"{source} generation {wanted} of the control document, the ranks follow {applied}")


def job_policy_status(now: JobView, seen: int, wanted: int, passed: float) -> ChangeStatus:
    """Return the status of a job's new policy.

    `wanted` is the metadata.generation of the job with the policy, `seen` the one that the operator observed.
    """
    if (early := not_running(now)) is not None:
        return early
    if seen < wanted:
        return ChangeStatus("pending", NOT_TAKEN_UP)
    if now.problem and now.problem_reason != CONTROL_REFUSED:
        return ChangeStatus("refused", now.problem)
    published = now.generation or 0
    return refusal(now, published, passed) or rollout(now, published, "the operator published")


def job_injection_status(before: JobView, now: JobView, phase: str, message: str, passed: float) -> ChangeStatus:
    """Return the status of a job's new injection; phase, message: of the StragglerInjection's own status, or ""."""
    if phase == "Failed":
        return ChangeStatus("refused", message or "the injection has failed")
    if (early := not_running(now)) is not None:
        return early
    if phase in APPLIED_PHASES:
        return ChangeStatus("in force")
    with_it = max(
        (before.generation or 0) + 1, now.generation or 0
    )  # the first document that can hold it, or a later one
    if (refused := refusal(now, with_it, passed)) is not None:
        return refused
    if phase:
        return ChangeStatus("pending", message or f"the injection is {phase}")
    return ChangeStatus("pending", NOT_TAKEN_UP)


def never_applied_status(passed: float) -> ChangeStatus:
    """Return the status of the removal of an injection that no rank had applied."""
    return ChangeStatus("later", "no rank had applied it yet")


def job_removal_status(before: JobView, now: JobView) -> ChangeStatus:
    """Return whether the ranks follow a control document without the removed injections."""
    if not now.running:
        return ChangeStatus("later", f"no rank follows it: the job is {now.state or 'new'}")
    wanted = (before.generation or 0) + 1
    if (now.generation or 0) < wanted:
        return ChangeStatus("pending", NOT_TAKEN_UP)
    return rollout(now, now.generation or 0, "the operator published")


def run_change_status(now: JobView, wanted: int, passed: float) -> ChangeStatus:
    """Return whether the ranks of a local run follow generation `wanted` of the control document."""
    starts = now.running or now.state == "starting"
    early = refusal(now, wanted, passed) if starts else not_running(now)
    return early or rollout(now, wanted, "the file holds")
