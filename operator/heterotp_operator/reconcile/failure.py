"""Why a gang ended: the root cause among the pods, and the verdict of the job's failure rules."""

from dataclasses import dataclass
from typing import Literal

from heterotp_api import reasons
from heterotp_api.last_words import RankFailure, rank_failure, trainer_status
from heterotp_api.names import CONTAINER, EXIT_BAD_INPUT, EXIT_NO_PROGRESS, EXIT_NON_FINITE, EXIT_STOPPED, VICTIM_EXITS
from heterotp_api.run_policy import FailureRule

from heterotp_operator.reconcile.observed import (
    Body,
    Observed,
    ended,
    first_rank_of,
    phase,
    seconds,
    terminating,
)

ROOT_CAUSE_GRACE_SECONDS = 5.0  # victims of a lost peer sometimes end first: wait for the root cause
Verdict = Literal["FailJob", "RestartGang", "IgnoreCount"]


@dataclass(frozen=True)
class Ruling:
    """What follows a failure; reason: of the condition Failed where the job ends."""

    action: Verdict
    reason: str = reasons.FAILURE_RULE


RESTART = Ruling("RestartGang")
# exit codes after which no restart helps, unless an own rule decides otherwise
REFUSED_INPUT = {EXIT_BAD_INPUT: Ruling("FailJob")}  # of the built-in trainer; programs use 2 for many things
NON_FINITE = {EXIT_NON_FINITE: Ruling("FailJob", reasons.NON_FINITE_LOSS)}  # of the library, also in an own command


@dataclass(frozen=True)
class Cause:
    """Why a pod ended: a reason and an exit code, and a message for people."""

    pod: str
    reason: str
    message: str
    exit_code: int | None = None
    conditions: tuple[str, ...] = ()
    taken: bool = False  # the pod was deleted or disrupted
    at: float = 0.0  # unix seconds of its end
    trainer: bool = False  # the exit code is the trainer's, not a sidecar's
    uid: str = ""  # of the pod; empty: it is gone


def find_cause(observed: Observed, created: bool) -> tuple[Cause | None, float | None]:
    """Return the root cause once it is known, else None and the seconds after which it will be.

    `created`: whether the gang had all its pods before, so that a missing one was taken from it.
    """
    lost = _missing(observed) if created else None
    suspects = [cause for pod in observed.current if (cause := _cause(pod, observed.now)) is not None]
    if lost is not None:
        suspects.append(lost)
    if not suspects:
        return None, None
    likeliest = _likeliest(suspects)
    if likeliest.exit_code not in VICTIM_EXITS or likeliest.taken:
        return likeliest, None
    # since this process first saw the end: the clock of the pod's node may be wrong by minutes
    left = ROOT_CAUSE_GRACE_SECONDS - observed.ended_for.get(likeliest.uid, 0.0)
    if left > 0 and not all(ended(pod) for pod in observed.current):
        return None, left
    return likeliest, None


def earlier_cause(observed: Observed) -> Cause | None:
    """Return the root cause among the pods of earlier attempts; None when they are gone or ended well."""
    suspects = [cause for pod in observed.old if (cause := _cause(pod, observed.now)) is not None]
    return _likeliest(suspects) if suspects else None


def _likeliest(suspects: list[Cause]) -> Cause:
    return min(suspects, key=lambda cause: (_guilt(cause), cause.at))


def _guilt(cause: Cause) -> int:
    """Order causes: a pod that was deleted, then a rank that failed, then one that was stopped, then victims."""
    if cause.taken or cause.exit_code is None:
        return 0
    if cause.exit_code in VICTIM_EXITS:
        return 3
    return 2 if cause.exit_code == EXIT_STOPPED else 1


def _missing(observed: Observed) -> Cause | None:
    here = {first_rank_of(pod) for pod in observed.current}
    for place in observed.places:
        if place.first_rank not in here:
            name = f"{observed.name}-{place.group}-{place.index}-{observed.attempt}"
            return Cause(name, reasons.POD_LOST, f"pod {name} of rank {place.first_rank} was deleted", taken=True)
    return None


def _cause(pod: Body, now: float) -> Cause | None:
    """Return why a pod ended badly; None when it did not."""
    found = _terminated(pod)
    if phase(pod) == "Succeeded" or not (found or phase(pod) == "Failed" or terminating(pod)):
        return None  # whatever the sidecars of a pod that succeeded ended with
    name, uid, first, status = *_identity(pod), first_rank_of(pod), pod.get("status", {})
    where = f"(pod {name} on node {pod.get('spec', {}).get('nodeName', 'none')})"
    holding = {c["type"]: c for c in status.get("conditions", ()) if c.get("status") == "True"}
    disruption = holding.get("DisruptionTarget", {})
    taken, kinds, at = bool(disruption) or terminating(pod), tuple(holding), _ended_at(pod, now)
    if found:
        container, state = found
        code, reason = int(state["exitCode"]), state.get("reason") or reasons.CONTAINER_ERROR
        if container == CONTAINER and code == EXIT_NO_PROGRESS:
            reason = reasons.NO_PROGRESS
        failure = rank_failure(state.get("message") or "") if container == CONTAINER else None
        detail = _detail(container, state, failure)
        words = f"rank {first if failure is None else failure.rank} {where} ended: " + (
            "" if container == CONTAINER else f"container {container}: "
        )
        words += f"{reason}, exit code {code}"
        words += f": {detail}" if detail else ""
        words += f"; it was taken away: {disruption.get('message') or 'deleted'}" if taken else ""
        return Cause(name, reason, words[:1000], code, kinds, taken, at, container == CONTAINER, uid)
    if phase(pod) == "Failed":
        reason = status.get("reason") or reasons.POD_FAILED
        words = f"rank {first} {where} failed: {reason}: {status.get('message', '')}"
        return Cause(name, reason, words[:1000], None, kinds, taken, at)
    if terminating(pod) and not ended(pod):
        reason = disruption.get("reason") or reasons.POD_DELETED
        words = f"rank {first} {where} was deleted" + (
            f": {disruption['message']}" if disruption.get("message") else ""
        )
        return Cause(name, reason, words[:1000], None, kinds, True, at)
    return None


def _identity(pod: Body) -> tuple[str, str]:
    return str(pod["metadata"]["name"]), str(pod["metadata"]["uid"])


def _detail(container: str, state: Body, failure: RankFailure | None) -> str:
    """Return what a container's termination message adds for people: of a trainer's documents, else the last line."""
    message = state.get("message") or ""
    if failure is not None:
        other = "" if failure.exit_code == state["exitCode"] else f"the rank's exit code {failure.exit_code}: "
        return other + (failure.message or "it wrote no output")
    if container == CONTAINER and (status := trainer_status(message)) is not None:
        return status.message
    return next(iter(reversed(message.strip().splitlines())), "")


def _terminated(pod: Body) -> tuple[str, Body] | None:
    """Return name and state of the container that ended badly: the trainer, another only if it took the pod down."""
    status = pod.get("status", {})
    bad: dict[str, Body] = {}
    for each in [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]:
        terminated = (each.get("state") or {}).get("terminated")
        if terminated and terminated.get("exitCode"):
            bad[str(each.get("name"))] = terminated
    if CONTAINER in bad:
        return CONTAINER, bad[CONTAINER]
    return next(iter(bad.items())) if bad and phase(pod) == "Failed" else None


def ended_badly(pod: Body) -> bool:
    """Return whether a pod, or a container that counts, failed."""
    return phase(pod) == "Failed" or _terminated(pod) is not None


def _ended_at(pod: Body, now: float) -> float:
    found = _terminated(pod)
    moment = seconds(found[1].get("finishedAt")) if found else None
    return now if moment is None else moment


def judge(cause: Cause, rules: list[FailureRule], built_in: bool = True) -> Ruling:
    """Return the action of the first rule that matches; without a match the gang is restarted and that counts.

    `built_in`: whether the built-in trainer runs, whose exit code for refused input is known.
    """
    for rule in rules:
        if rule.on_exit_codes is not None and cause.exit_code in rule.on_exit_codes:
            return Ruling(rule.action)
        if rule.on_pod_conditions is not None and set(rule.on_pod_conditions) & set(cause.conditions):
            return Ruling(rule.action)
    known = {**NON_FINITE, **(REFUSED_INPUT if built_in else {})}
    return known.get(cause.exit_code or 0, RESTART) if cause.trainer else RESTART
