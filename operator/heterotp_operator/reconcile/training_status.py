"""What rank 0 reports, as the job's status shows it: progress, every rank with pod and node, what balancing does."""

import math
from collections.abc import Sequence
from typing import Any

from heterotp_api import reasons
from heterotp_api.causes import CAUSE_KINDS
from heterotp_api.conditions import FAILED, SUCCEEDED
from heterotp_api.slowdown import slowdown_text, slowest
from heterotp_api.stages import STAGES
from heterotp_api.status import MAX_BLAMED, MAX_CAUSES, CauseStatus
from heterotp_api.trainer_status import TrainerCause, TrainerRank, TrainerStatus

from heterotp_operator.reconcile.observed import Body, Observed, stamp

RANK_NUMBERS = (
    "compute_seconds",
    "matmul_seconds",
    "wait_seconds",
    "relative_speed",
    "slowdown",
    "share",
    "pruned_ratio",
    "migrated_ratio",
    "injected_slowdown",
    "measured_slowdown",
)
REPORTED_BALANCING = (
    "appliedGeneration",
    "predictedIterationSeconds",
    "limitIterationSeconds",
    "untouchedIterationSeconds",
    "savedSeconds",
    "moves",
    "decisionId",
    "reason",
)
MAX_TEXT = 1024
KEPT = ("training", "ranks", "slowest", "blame", "causes")  # while rank 0 does not answer
CONSTANT = ("cpuLimit", "injection")  # causes whose amount is a setting; other amounts move with noise
MAX_SLOWEST = 64
LEAST_LOST = 0.02  # of an iteration: less is noise, and not worth a write
STAYING = 0.95  # of replaceThreshold: above it a rank stays replaceable that was before


def reported_fields(observed: Observed) -> Body:
    """Return the fields of the status that rank 0 reports; they stay as they are while it does not answer."""
    live = observed.status
    shown: Body = {"balancing": _balancing(observed)}
    trainer = observed.trainer_status
    if trainer is None or trainer.state == "starting":
        return shown | {key: live[key] for key in KEPT if live.get(key)}
    shown["training"] = _training(trainer)
    if blamed := _blame(trainer):
        shown["blame"] = blamed
    if causes := known_causes(trainer, live.get("causes") or ()):
        shown["causes"] = [each.model_dump(by_alias=True, exclude_none=True) for each in causes]
    shown["ranks"] = rank_rows(observed, trainer)
    if text := _slowest(trainer.ranks):
        shown["slowest"] = text
    return shown


def rounded(value: float | None) -> float | None:
    """Return a number with 3 significant digits: what moves less is not worth a write."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.3g}")


def coarse(value: float | None) -> float | None:
    """Return a number with one significant digit, for what moves with noise at every poll."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.1g}")


def _blame(trainer: TrainerStatus) -> list[Body]:
    """Return who loses a good part of an iteration, steadily, and in which known stage, the most first."""
    least = LEAST_LOST * (trainer.iteration_seconds or math.inf)
    known = [each for each in trainer.blame if each.stage in STAGES and each.steady_seconds >= least]
    return [
        {"rank": each.rank, "stage": each.stage, "seconds": coarse(each.seconds), "share": coarse(each.share)}
        for each in sorted(known, key=lambda each: -each.seconds)[:MAX_BLAMED]
    ]


def known_causes(trainer: TrainerStatus, shown_before: Sequence[Body]) -> list[CauseStatus]:
    """Return why ranks are slow, by known kinds, each once for a rank; in the order of the report.

    Where there are more than the status takes, those stay that it shows already: the order moves with noise.
    """
    known: dict[tuple[int, str], TrainerCause] = {
        (each.rank, each.kind): each for each in reversed(trainer.causes) if each.kind in CAUSE_KINDS
    }
    shown = [each for each in trainer.causes if known.get((each.rank, each.kind)) is each]
    before = {(each.get("rank"), each.get("kind")) for each in shown_before}
    kept = sorted(shown, key=lambda each: (each.rank, each.kind) not in before)[:MAX_CAUSES]
    return [_cause(each) for each in shown if each in kept]


def _cause(cause: TrainerCause) -> CauseStatus:
    amount = rounded(cause.amount) if cause.kind in CONSTANT else coarse(cause.amount)
    return CauseStatus.model_validate(
        {"rank": cause.rank, "kind": cause.kind, "share": coarse(min(cause.share, 1.0)), "amount": amount}
    )


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
            "lostSeconds": coarse(trainer.lost_seconds),
            "loss": rounded(trainer.loss),
            "accuracy": rounded(trainer.accuracy),
            "perplexity": rounded(trainer.perplexity),
            "etaSeconds": rounded(trainer.eta_seconds),
        }
    )


def rank_rows(observed: Observed, trainer: TrainerStatus) -> list[Body]:
    """Return the ranks that rank 0 shows, at most MAX_RANKS, with pod and node."""
    before = {row["rank"]: row for row in observed.status.get("ranks") or ()}
    rows = [_rank(rank, observed.pod_of.get(rank.rank)) for rank in sorted(trainer.ranks, key=lambda rank: rank.rank)]
    return [row | _since(observed, row, before.get(row["rank"], {})) for row in rows]


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
            "injectionProblem": rank.injection_problem[:256] or None,
            "columnsIn": rank.columns_in or None,
            "heads": rank.heads or None,
            "hiddenUnits": rank.hidden_units or None,
            "vocabularyRows": rank.vocabulary_rows or None,
            "straggler": rank.straggler,
        }
    )


def _since(observed: Observed, row: Body, before: Body) -> Body:
    """Return since when a rank is a straggler, and since when so slow that it should be replaced, in this very pod."""
    threshold = observed.effective.policy.settings.replace_threshold
    same_pod = before.get("pod") == row.get("pod")
    if same_pod and before.get("replaceableSince"):
        threshold *= STAYING  # noise around the threshold must not begin the time anew
    slow = {
        "stragglingSince": row["straggler"],
        # also when its units have moved away and no rank waits for it
        "replaceableSince": row.get("slowdown", 0.0) >= threshold,
    }
    return {
        field: (before.get(field) if same_pod else None) or stamp(observed.now)
        for field, holds in slow.items()
        if holds
    }


def _slowest(ranks: tuple[TrainerRank, ...]) -> str:
    """Return the rank of the largest chi, e.g. 'rank 3 (2.1x)'; empty: no rank is slow."""
    finite = ((rank.rank, rounded(rank.slowdown)) for rank in ranks)
    found = slowest(finite)
    return f"rank {found[0]} ({slowdown_text(found[1])})"[:MAX_SLOWEST] if found else ""


def _balancing(observed: Observed) -> Body:
    """Return balancing: the policy in force, and what rank 0 reported of it last."""
    trainer = observed.trainer_status
    if trainer is None or trainer.state == "starting":
        live = observed.status.get("balancing") or {}
        reported = {key: live.get(key) for key in REPORTED_BALANCING}
    else:
        reported = {
            "appliedGeneration": trainer.applied_generation,
            "predictedIterationSeconds": rounded(trainer.predicted_iteration_seconds),
            "limitIterationSeconds": rounded(trainer.limit_iteration_seconds),
            "untouchedIterationSeconds": rounded(trainer.untouched_iteration_seconds),
            "savedSeconds": rounded(trainer.saved_seconds) or None,
            "moves": trainer.moves or None,
            "decisionId": trainer.decision_id or None,
            "reason": trainer.reason[:MAX_TEXT] or None,
        }
    return _given({**_published(observed), **reported, **_problem(observed)})


def _problem(observed: Observed) -> Body:
    """Return why the ranks do not follow what was asked for, as data and for people; empty: they follow it."""
    policy, trainer = observed.effective.policy, observed.trainer_status
    if policy.reason:
        return {"problemReason": policy.reason, "problem": policy.problem[:MAX_TEXT]}
    if trainer is not None and trainer.control_error:
        return {
            "problemReason": reasons.CONTROL_REFUSED,
            "problemGeneration": trainer.control_error_generation,
            "problem": trainer.control_error[:MAX_TEXT],
        }
    return {}


def _published(observed: Observed) -> Body:
    """Return which control document is published; for a job that has ended, the last one."""
    live = observed.status.get("balancing") or {}
    if live and (observed.holds(SUCCEEDED) or observed.holds(FAILED)):
        return {key: live.get(key) for key in ("policy", "policyGeneration", "generation", "strategy")}
    policy, document = observed.effective.policy, observed.effective.document
    return {
        "policy": policy.name,
        "policyGeneration": policy.generation or None,
        "generation": document.generation,
        "strategy": document.balancing.strategy,
    }
