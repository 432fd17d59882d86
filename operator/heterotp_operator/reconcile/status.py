"""The status of a job: its pods, counted; what rank 0 reports; the one thing that the job waits for."""

from collections import defaultdict

from heterotp_api.conditions import ADMITTED, FAILED, RUNNING, STALLED, SUCCEEDED, SUSPENDED
from heterotp_api.names import EXIT_NAME_UNRESOLVED, LABEL_GROUP
from heterotp_api.reasons import POLICY_NOT_FOUND, RANKS_TRAINING

from heterotp_operator.reconcile.conditions import Conditions, completed_attempt
from heterotp_operator.reconcile.deadlines import SILENCE_SECONDS, UNSEEN_SECONDS, unseen_since
from heterotp_operator.reconcile.observed import Body, Observed, ended, phase, stamp
from heterotp_operator.reconcile.stall import stall_of
from heterotp_operator.reconcile.training_status import reported_fields

RATES = ("iterationsPerSecond", "samplesPerSecond", "etaSeconds")  # of status.training
IMAGE_REASONS = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"}


def status_of(observed: Observed, conditions: Conditions, waiting_for: str | None = None) -> Body:
    """Return the whole status but the attempt's counters."""
    live = observed.status
    out: Body = {
        "observedGeneration": observed.job["metadata"].get("generation", 0),
        "phase": conditions.phase(),
        "conditions": conditions.list(),
        "waitingFor": waits_for(observed, conditions) if waiting_for is None else waiting_for,
        "workerGroups": group_counts(observed),
        "completedAttempt": completed_attempt(observed),
    }
    ending = conditions.holds(SUCCEEDED) or conditions.holds(FAILED)
    waits = observed.spec.run_policy.suspend or (observed.queued and not conditions.holds(ADMITTED))
    if ending or not waits:  # as in batch/v1: the time starts again with resuming, and with admission
        out["startTime"] = live.get("startTime") or stamp(observed.now)
    if ending:
        out["workerGroups"] = _counts_at_the_end(observed, out["workerGroups"])
        out["completionTime"] = live.get("completionTime") or stamp(observed.now)
    if conditions.holds(STALLED) and (stall := stall_of(observed)):
        out["stall"] = stall
    out |= reported_fields(observed)
    return out if out["phase"] == RUNNING else _without_rates(out)


def _without_rates(status: Body) -> Body:
    """Return the status without speeds: they are of now, and a job that does not run has none."""
    kept = {name: value for name, value in status.items() if name not in ("slowest", "blame")}
    if training := status.get("training"):
        kept["training"] = {name: value for name, value in training.items() if name not in RATES}
    return kept


def group_counts(observed: Observed) -> list[Body]:
    """Return per worker group how many pods are wanted, ready, active, succeeded and failed."""
    pods_of: defaultdict[str, list[Body]] = defaultdict(list)
    for pod in observed.current:
        pods_of[str(pod["metadata"]["labels"].get(LABEL_GROUP))].append(pod)
    groups = []
    for group in observed.spec.worker_groups:
        pods = pods_of[group.name]
        phases = [phase(pod) for pod in pods]
        groups.append(
            {
                "name": group.name,
                "desired": group.pods,
                "ready": sum(is_ready(pod) for pod in pods),
                "active": sum(not ended(pod) for pod in pods),
                "succeeded": phases.count("Succeeded"),
                "failed": phases.count("Failed"),
            }
        )
    return groups


def _counts_at_the_end(observed: Observed, counts: list[Body]) -> list[Body]:
    """Keep how many pods had succeeded and failed when the job ended: cleaning up must not change it."""
    if not (observed.holds(SUCCEEDED) or observed.holds(FAILED)):
        return counts
    known = {group["name"]: group for group in observed.status.get("workerGroups") or ()}
    return [
        {**group, **{key: known.get(group["name"], group).get(key, 0) for key in ("succeeded", "failed")}}
        for group in counts
    ]


def is_ready(pod: Body) -> bool:
    """Return whether a pod runs and is ready."""
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in pod.get("status", {}).get("conditions", ()))
    return phase(pod) == "Running" and ready


def waits_for(observed: Observed, conditions: Conditions) -> str:
    """Return the one thing that the job waits for now; empty: nothing."""
    if conditions.phase() in (SUCCEEDED, FAILED, SUSPENDED):
        return ""
    if observed.foreign or observed.old:
        return "PodsTerminating"
    # a Workload that is not written delays nothing once the job is admitted
    codes = [refusal.code for subject, refusal in observed.refusals.items() if subject != "Workload"]
    if codes:
        return "Quota" if 403 in codes else "Creation"
    if observed.queued and not conditions.holds(ADMITTED):
        return "Admission"
    for pod in observed.current:
        if reason := _pod_waits_for(pod, observed.now):
            return reason
    if observed.effective.policy.reason == POLICY_NOT_FOUND:
        return "Policy"
    return _ranks_wait_for(observed, conditions) or ("Iteration" if conditions.holds(STALLED) else "")


def _pod_waits_for(pod: Body, now: float) -> str:
    status = pod.get("status", {})
    since = unseen_since(pod)
    if since is not None and now - since > UNSEEN_SECONDS:
        return "Unschedulable"  # its scheduler is away, or passes it over: Volcano does for a queue that is missing
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            # a gate is a queue's: the pod waits to be admitted, not for a node that fits
            return "Quota" if condition.get("reason") == "SchedulingGated" else "Unschedulable"
    for container in [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]:
        state = container.get("state") or {}
        if (state.get("waiting") or {}).get("reason") in IMAGE_REASONS:
            return "ImagePull"
        if (state.get("terminated") or {}).get("exitCode") == EXIT_NAME_UNRESOLVED:
            return "DNS"
    return ""


def _ranks_wait_for(observed: Observed, conditions: Conditions) -> str:
    """Return what the running ranks wait for; Unreachable: rank 0 does not answer the operator."""
    trainer = observed.trainer
    if observed.spec.training is None or not conditions.holds(RUNNING):
        return ""
    if conditions.reason(RUNNING) != RANKS_TRAINING:
        return "Rendezvous"
    if trainer is not None and trainer.status is None and observed.now - trainer.since > SILENCE_SECONDS:
        return "Unreachable"
    if trainer is not None and trainer.status is not None and trainer.status.state == "stopping":
        return "Checkpoint"
    return ""
