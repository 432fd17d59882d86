"""How a change stands, read off the objects of a cluster or a run's status. Pure."""

from heterotp_cli.verbs.target import STALE_SECONDS, Standing
from heterotp_cli.verbs.view import JobView

HOLDS = ("Injecting", "Finished", "Paused")  # phases of an injection that the ranks know of


def refusal(before: JobView, now: JobView, passed: float) -> Standing | None:
    """Return that the change was refused; words that stood there before need time to go."""
    if now.refused and (now.refused != before.refused or passed >= STALE_SECONDS):
        return Standing("refused", now.refused)
    return None


def not_yet(now: JobView) -> Standing | None:
    """Return that a job does not run, and so holds a change later or never."""
    if now.running:
        return None
    if now.ended:
        return Standing("refused", f"the job has ended ({now.state})")
    return Standing("later", f"holds as soon as the job runs; it is {now.state or 'not seen by the operator'} now")


def spread(now: JobView, wanted: int, whose: str) -> Standing:
    """Return whether all ranks follow a generation of the control document."""
    applied = now.applied_generation or 0
    if applied >= wanted:
        return Standing("in force")
    return Standing("pending", f"{whose} generation {wanted} of the control document, the ranks follow {applied}")


def policy_of_job(before: JobView, now: JobView, seen: int, wanted: int, passed: float) -> Standing:
    """Return how a policy stands: `wanted` is the job's own generation with it, `seen` the one the operator saw."""
    early = not_yet(now) or (refusal(before, now, passed) if seen >= wanted else None)
    if early is not None:
        return early
    if seen < wanted:
        return Standing("pending", UNSEEN)
    return spread(now, now.generation or 0, "the operator published")


UNSEEN = "the operator has not taken it up: does it run?"


def injection_of_job(before: JobView, now: JobView, phase: str, message: str, passed: float) -> Standing:
    """Return how an injection stands, by its own status where the operator wrote one."""
    if phase == "Failed":
        return Standing("refused", message or "the injection has failed")
    if (early := not_yet(now)) is not None:
        return early
    if phase in HOLDS:
        return Standing("in force")
    behind = (now.generation or 0) > (now.applied_generation or 0)  # else the job's problem is not the document
    if behind and (refused := refusal(before, now, passed)) is not None:
        return refused
    if phase:
        return Standing("pending", message or f"the injection is {phase}")
    return Standing("pending", UNSEEN)


def never_held(passed: float) -> Standing:
    """Return how it stands that an injection is gone that no rank knew of."""
    return Standing("later", "no rank knew of it yet")


def taken_back_of_job(before: JobView, now: JobView) -> Standing:
    """Return whether the ranks follow a document without what was taken back."""
    if not now.running:
        return Standing("later", f"no rank follows it: the job is {now.state or 'new'}")
    wanted = (before.generation or 0) + 1
    if (now.generation or 0) < wanted:
        return Standing("pending", UNSEEN)
    return spread(now, now.generation or 0, "the operator published")


def of_run(before: JobView, now: JobView, wanted: int, passed: float) -> Standing:
    """Return how a change of a run's control document stands."""
    early = not_yet(now) if not (now.running or now.state == "starting") else refusal(before, now, passed)
    return early or spread(now, wanted, "the file holds")
