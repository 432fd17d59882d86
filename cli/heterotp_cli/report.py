"""The result of a run: rank 0's report, completed where it could not be written, and its summary."""

from collections.abc import Sequence
from typing import Any

from heterotp_api.ranks import RankPlace
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
    "strategy",
    "emulated",
    "ranks",
)
RANK_KEYS = ("computeSeconds", "matmulSeconds", "unitSeconds", "fixedSeconds", "waitSeconds", "relativeSpeed")


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
        "iterationSeconds": iteration_statistics(history),
        "limitIterationSeconds": status.limit_iteration_seconds if status else None,
        "strategy": status.strategy if status else None,
        "emulated": any(place.device.type == "emulated" for place in places),
        "ranks": _ranks(status, places),
    }


def _ranks(status: TrainerStatus | None, places: Sequence[RankPlace]) -> list[dict[str, Any]]:
    known = {rank.rank: rank.dump() for rank in status.ranks} if status else {}
    return [
        {
            "rank": place.rank,
            "group": place.group,
            "share": known.get(place.rank, {}).get("share"),
            **{key: known.get(place.rank, {}).get(key) for key in RANK_KEYS},
        }
        for place in places
    ]


def iteration_statistics(history: History) -> dict[str, float | None]:
    """Return min, median, p95 and max of the iteration time, seconds."""
    times = sorted(e["iterationSeconds"] for e in history.entries if e.get("iterationSeconds") is not None)
    if not times:
        return dict.fromkeys(("min", "median", "p95", "max"))
    middle, last = len(times) // 2, len(times) - 1
    median = times[middle] if len(times) % 2 else (times[middle - 1] + times[middle]) / 2
    return {"min": times[0], "median": median, "p95": times[round(0.95 * last)], "max": times[-1]}


def summary_lines(report: dict[str, Any], elapsed_seconds: float) -> list[str]:
    """Return what the run came to, in a few lines."""
    emulated = ", emulated devices" if report.get("emulated") else ""
    loss = report.get("trainLoss")
    times = report.get("iterationSeconds") or {}
    return [
        f"{report['job']} {report['state']} (attempt {report['attempt']}{emulated}) in {elapsed_seconds:.0f} s",
        f"  iterations     {report['iterations']} ({report['epochs']} epochs)",
        f"  train loss     {'-' if loss is None else f'{loss:.4f}'}",
        f"  test accuracy  {percent(report.get('testAccuracy'))}",
        f"  iteration      median {seconds(times.get('median'))}, 95 % below {seconds(times.get('p95'))}, "
        f"limit {seconds(report.get('limitIterationSeconds'))}",
    ]
