"""The result of a run: rank 0's report, completed where it could not be written, and its summary."""

from collections.abc import Sequence
from typing import Any

from heterotp_api.ranks import RankPlace
from heterotp_api.summary import summary
from heterotp_api.trainer_status import TrainerStatus

from heterotp_cli.follow import History
from heterotp_cli.rows import percent, seconds

KEYS = (
    "job",
    "state",
    "attempt",
    "iterations",
    "epochs",
    "trainLoss",
    "testAccuracy",
    "iterationSeconds",
    "limitIterationSeconds",
    "predictedIterationSeconds",
    "strategy",
    "decisionId",
    "reason",
    "emulated",
    "ranks",
)
RANK_KEYS = (
    "rank",
    "group",
    "share",
    "computeSeconds",
    "matmulSeconds",
    "unitSeconds",
    "fixedSeconds",
    "waitSeconds",
    "relativeSpeed",
    "prunedRatio",
    "migratedRatio",
    "injectedSlowdown",
    "measuredSlowdown",
)


def completed(
    written: dict[str, Any] | None,
    state: str,
    job: str,
    attempt: int,
    status: TrainerStatus | None,
    history: History,
    places: Sequence[RankPlace],
) -> dict[str, Any]:
    """Return a report with all stable keys: what rank 0 wrote wins, but how the run ended is seen from here."""
    return {**_guessed(job, attempt, status, history, places), **(written or {}), "state": state}


def _guessed(
    job: str, attempt: int, status: TrainerStatus | None, history: History, places: Sequence[RankPlace]
) -> dict[str, Any]:
    last = history.entries[-1] if len(history) else {}
    return {
        "job": job,
        "attempt": attempt,
        "iterations": history.iterations[-1] if len(history) else status.iteration if status else 0,
        "epochs": last.get("epoch", status.epoch if status else 0),
        "trainLoss": last.get("loss", status.loss if status else None),
        "testAccuracy": status.accuracy if status else None,
        "iterationSeconds": summary(measured_seconds(history, attempt)),
        "limitIterationSeconds": status.limit_iteration_seconds if status else None,
        "predictedIterationSeconds": status.predicted_iteration_seconds if status else None,
        "strategy": status.strategy if status else None,
        "decisionId": status.decision_id if status else 0,
        "reason": status.reason if status else "",
        "emulated": any(place.device.type == "emulated" for place in places),
        "ranks": _ranks(status, places),
    }


def measured_seconds(history: History, attempt: int) -> list[float]:
    """Return the iteration times of an attempt that statistics take: no warm-up, checkpoint or evaluation."""
    return [
        entry["iterationSeconds"]
        for entry in history.entries
        if entry.get("attempt") == attempt and entry.get("measured") and entry.get("iterationSeconds") is not None
    ]


def _ranks(status: TrainerStatus | None, places: Sequence[RankPlace]) -> list[dict[str, Any]]:
    known = {rank.rank: rank.dump() for rank in status.ranks} if status else {}
    return [
        {key: known.get(place.rank, {}).get(key) for key in RANK_KEYS} | {"rank": place.rank, "group": place.group}
        for place in places
    ]


def summary_lines(report: dict[str, Any], elapsed_seconds: float) -> list[str]:
    """Return what the run came to, in a few lines."""
    emulated = ", emulated devices" if report.get("emulated") else ""
    loss = report.get("trainLoss")
    times = report.get("iterationSeconds") or {}
    predicted, reason = report.get("predictedIterationSeconds"), report.get("reason")
    return [
        f"{report['job']} {report['state']} (attempt {report['attempt']}{emulated}) in {elapsed_seconds:.0f} s",
        f"  iterations     {report['iterations']} ({report['epochs']} epochs)",
        f"  train loss     {'-' if loss is None else f'{loss:.4f}'}",
        f"  test accuracy  {percent(report.get('testAccuracy'))}",
        f"  iteration      median {seconds(times.get('median'))}, 95 % below {seconds(times.get('p95'))}, "
        f"limit {seconds(report.get('limitIterationSeconds'))}"
        + (f", predicted {seconds(predicted)}" if predicted is not None else ""),
        *([f"  balancing      {report['strategy']}, decision {report['decisionId']}: {reason}"] if reason else []),
    ]
