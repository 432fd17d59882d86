"""The status of a job: counted pods, what the trainer says, what is waited for."""

import math
from typing import Any

from heterotp_api.status import MAX_RANKS
from heterotp_api.trainer_status import TrainerRank, TrainerStatus

from heterotp_operator.reconcile.children import control_document, policy_of, waits_for_policy
from heterotp_operator.reconcile.conditions import Conditions
from heterotp_operator.reconcile.deadlines import RANKS_TRAINING, SILENCE_SECONDS
from heterotp_operator.reconcile.observed import (
    Body,
    Observed,
    ended,
    first_rank_of,
    phase,
    stamp,
)

RANK_NUMBERS = (
    "compute_seconds",
    "matmul_seconds",
    "wait_seconds",
    "relative_speed",
    "share",
    "pruned_ratio",
    "migrated_ratio",
    "injected_slowdown",
    "measured_slowdown",
)
UNRESOLVED = "does not resolve"  # a rank's last words when the gang's name is not in the DNS
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
    }
    ending = conditions.holds("Succeeded") or conditions.holds("Failed")
    if ending or not observed.spec.run_policy.suspend:  # as in batch/v1: the time starts again with resuming
        out["startTime"] = live.get("startTime") or stamp(observed.now)
    if ending:
        out["workerGroups"] = _counts_at_the_end(observed, out["workerGroups"])
        out["completionTime"] = live.get("completionTime") or stamp(observed.now)
    out |= _told(observed)
    return out


def group_counts(observed: Observed) -> list[Body]:
    """Return per worker group how many pods are wanted, ready, active, succeeded and failed."""
    groups = []
    for group in observed.spec.worker_groups:
        pods = [p for p in observed.current if p["metadata"]["labels"].get("heterotp.io/worker-group") == group.name]
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
    if not (observed.holds("Succeeded") or observed.holds("Failed")):
        return counts
    known = {group["name"]: group for group in observed.status.get("workerGroups") or ()}
    return [
        {**group, **{key: known.get(group["name"], group).get(key, 0) for key in ("succeeded", "failed")}}
        for group in counts
    ]


def is_ready(pod: Body) -> bool:
    """Return whether a pod runs and says that it is ready."""
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in pod.get("status", {}).get("conditions", ()))
    return phase(pod) == "Running" and ready


def waits_for(observed: Observed, conditions: Conditions) -> str:
    """Return the one thing that the job waits for now; empty: nothing."""
    if conditions.phase() in ("Succeeded", "Failed", "Suspended"):
        return ""
    if observed.foreign or observed.old:
        return "PodsTerminating"
    if observed.refusals:
        return "Quota" if any(code == 403 for code, _ in observed.refusals.values()) else "Creation"
    for pod in observed.current:
        if reason := _pod_waits_for(pod):
            return reason
    if waits_for_policy(observed):
        return "Policy"
    return _ranks_wait_for(observed, conditions)


def _pod_waits_for(pod: Body) -> str:
    status = pod.get("status", {})
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            # a gate is a queue's: the pod waits to be admitted, not for a node that fits
            return "Quota" if condition.get("reason") == "SchedulingGated" else "Unschedulable"
    for container in [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]:
        state = container.get("state") or {}
        if (state.get("waiting") or {}).get("reason") in IMAGE_REASONS:
            return "ImagePull"
        if UNRESOLVED in ((state.get("terminated") or {}).get("message") or ""):
            return "DNS"
    return ""


def _ranks_wait_for(observed: Observed, conditions: Conditions) -> str:
    """Return what the running ranks wait for: each other, or to be heard."""
    trainer = observed.trainer
    if observed.spec.training is None or not conditions.holds("Running"):
        return ""
    if conditions.reason("Running") != RANKS_TRAINING:
        return "Rendezvous"
    if trainer is not None and trainer.error and observed.now - trainer.since > SILENCE_SECONDS:
        return "Unreachable"
    if trainer is not None and trainer.status is not None and trainer.status.state == "stopping":
        return "Checkpoint"
    return ""


# -- what the trainer says ------------------------------------------------------------------------------------


def _told(observed: Observed) -> Body:
    """Return the parts of the status that rank 0 tells; the last ones stay while it is silent."""
    live = observed.status
    told: Body = {"balancing": _balancing(observed)}
    trainer = observed.told
    if trainer is None or trainer.state == "starting":
        kept = {key: live[key] for key in ("training", "ranks", "slowest") if live.get(key)}
        return told | kept
    told["training"] = _training(trainer)
    told["ranks"] = _ranks(observed, trainer)
    if slowest := _slowest(trainer.ranks):
        told["slowest"] = slowest
    return told


def rounded(value: float | None) -> float | None:
    """Return a number with 3 significant digits: what moves less is not worth a write."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.3g}")


def _given(fields: dict[str, Any]) -> Body:
    return {key: value for key, value in fields.items() if value is not None}


def _training(trainer: TrainerStatus) -> Body:
    seconds = trainer.iteration_seconds
    return _given(
        {
            "epoch": trainer.epoch,
            "iteration": trainer.iteration,
            "totalIterations": trainer.total_iterations,
            "resumedFrom": trainer.resumed_from,
            "iterationSeconds": rounded(seconds),
            "iterationsPerSecond": rounded(1 / seconds) if seconds else None,
            "samplesPerSecond": rounded(trainer.samples_per_second),
            "loss": rounded(trainer.loss),
            "accuracy": rounded(trainer.accuracy),
            "etaSeconds": rounded(trainer.eta_seconds),
        }
    )


def _ranks(observed: Observed, trainer: TrainerStatus) -> list[Body]:
    """Return the ranks with pod and node; the slowest of more than a status can hold."""
    pods = {}
    by_first = {first_rank_of(pod): pod for pod in observed.current}
    for place in observed.places:
        for local in range(place.processes):
            pods[place.first_rank + local] = by_first.get(place.first_rank)
    chosen = sorted(trainer.ranks, key=lambda rank: rank.relative_speed or 0.0)[:MAX_RANKS]
    return [_rank(rank, pods.get(rank.rank)) for rank in sorted(chosen, key=lambda rank: rank.rank)]


def _rank(rank: TrainerRank, pod: Body | None) -> Body:
    numbers = rank.model_dump(by_alias=True, include=set(RANK_NUMBERS))
    return _given(
        {
            "rank": rank.rank,
            "tpRank": rank.tp_rank,
            "pod": pod["metadata"]["name"] if pod else None,
            "node": pod.get("spec", {}).get("nodeName") if pod else None,
            "device": rank.device,
            **{name: rounded(value) for name, value in numbers.items()},
            "straggler": rank.straggler,
        }
    )


def _slowest(ranks: tuple[TrainerRank, ...]) -> str:
    """Return e.g. 'rank 3 (2.1x)': the slowest rank and how many times slower than the fastest it is."""
    known = [rank for rank in ranks if rank.relative_speed]
    if len(known) < 2:
        return ""
    slowest = min(known, key=lambda rank: rank.relative_speed or 0.0)
    assert slowest.relative_speed is not None
    return f"rank {slowest.rank} ({1 / slowest.relative_speed:.1f}x)"


def _balancing(observed: Observed) -> Body:
    """Return the policy in force; what the trainer said of it last stays while it is silent."""
    document = control_document(observed)
    trainer = observed.told
    if trainer is None:
        live = observed.status.get("balancing") or {}
        told = {key: live.get(key) for key in ("appliedGeneration", "limitIterationSeconds", "reason")}
    else:
        told = {
            "appliedGeneration": trainer.applied_generation,
            "limitIterationSeconds": rounded(trainer.limit_iteration_seconds),
            "reason": trainer.control_error[:1024] or None,
        }
    return _given(
        {
            "policy": policy_of(observed)[1],
            "generation": document.generation,
            "strategy": document.balancing.strategy,
            **told,
        }
    )
