"""The result of a run: rank 0's report, completed where rank 0 could not write it, and its summary."""

from collections.abc import Sequence
from typing import Any

from heterotp_api.gang_text import gang_text
from heterotp_api.ranks import RankPlace
from heterotp_api.report import RankReport, RunReport, RunState, run_report
from heterotp_api.summary import summary
from heterotp_api.trainer_status import TrainerGang, TrainerStatus

from heterotp_cli.follow import History
from heterotp_cli.rows import percent, seconds


def completed(
    written: dict[str, Any] | None,
    state: RunState,
    job: str,
    attempt: int,
    status: TrainerStatus | None,
    history: History,
    places: Sequence[RankPlace],
) -> dict[str, Any]:
    """Return a report with all keys: rank 0's values where it wrote them, but the state as this process saw it."""
    own = _own_report(state, job, attempt, status, history, places).document()
    return {**own, **(written or {}), "state": state}


def _own_report(
    state: RunState,
    job: str,
    attempt: int,
    status: TrainerStatus | None,
    history: History,
    places: Sequence[RankPlace],
) -> RunReport:
    """Return the report by the last status, if there is one, and the history."""
    times = summary(measured_seconds(history, attempt))
    groups = [place.group for place in places]
    known = run_report(status, groups, times) if status is not None else None
    report = known or RunReport(job=job, state=state, attempt=attempt, iteration_seconds=times)
    rows = {row.rank: row for row in report.ranks}
    last = history.entries[-1] if len(history) else {}
    return report.model_copy(
        update={
            "iterations": history.iterations[-1] if len(history) else report.iterations,
            "epochs": last.get("epoch", report.epochs),
            "train_loss": last.get("loss", report.train_loss),
            "emulated": any(place.device.type == "emulated" for place in places),
            "ranks": tuple(rows.get(p.rank) or RankReport(rank=p.rank, group=p.group) for p in places),
        }
    )


def measured_seconds(history: History, attempt: int) -> list[float]:
    """Return the measured iteration times of an attempt, seconds: without warm-up, checkpoints and evaluations."""
    return [
        entry["iterationSeconds"]
        for entry in history.entries
        if entry.get("attempt") == attempt and entry.get("measured") and entry.get("iterationSeconds") is not None
    ]


def summary_lines(report: dict[str, Any], elapsed_seconds: float) -> list[str]:
    """Return the result of a run in a few lines."""
    emulated = ", emulated devices" if report.get("emulated") else ""
    loss = report.get("trainLoss")
    times = report.get("iterationSeconds") or {}
    reason = report.get("reason")
    return [
        f"{report['job']} {report['state']} (attempt {report['attempt']}{emulated}) in {elapsed_seconds:.0f} s",
        f"  iterations     {report['iterations']} ({report['epochs']} epochs)",
        f"  train loss     {'-' if loss is None else f'{loss:.4f}'}",
        *_evaluation(report),
        f"  iteration      median {seconds(times.get('median'))}, 95 % below {seconds(times.get('p95'))}"
        + _at_the_end(report),
        *([f"  balancing      {report['strategy']}, decision {report['decisionId']}: {reason}"] if reason else []),
        *_cost(report, elapsed_seconds),
        *_gang(report),
    ]


def _at_the_end(report: dict[str, Any]) -> str:
    """Return the limit and the prediction, which are of the last iterations, while the median is of all."""
    parts = (("limit", report.get("limitIterationSeconds")), ("predicted", report.get("predictedIterationSeconds")))
    known = [f"{word} {seconds(value)}" for word, value in parts if value is not None]
    return f"; at the end: {', '.join(known)}" if known else ""


def _cost(report: dict[str, Any], elapsed_seconds: float) -> list[str]:
    """Return the line on what balancing cost and saved over the run; none where it never changed anything."""
    deleted, saved = report.get("deletedShare") or 0.0, report.get("savedSeconds") or 0.0
    moves = report.get("moves") or []
    if not (deleted or saved or moves):
        return []
    parts = [f"pruned {percent(deleted)} of all work" if deleted else "no work pruned"]
    if moves:
        parts.append(f"units moved {len(moves)}x in {seconds(sum(move['seconds'] for move in moves))}")
    if saved:
        # a resumed run counts the savings of all attempts, but elapsed_seconds are of this one
        whole = f" of {seconds(elapsed_seconds + saved)}" if saved > 0 and report["attempt"] == 1 else ""
        parts.append(f"{'saved' if saved > 0 else 'lost'} {seconds(abs(saved))}{whole}")
    return [f"  cost           {'; '.join(parts)}"]


def _gang(report: dict[str, Any]) -> list[str]:
    """Return the line on ranks that were lost or came back; none where all stayed."""
    if not report.get("gang"):
        return []
    gang = TrainerGang.model_validate(report["gang"])
    parts = [gang_text(gang), f"lost ranks came back {gang.comebacks}x" if gang.comebacks else ""]
    told = "; ".join(filter(None, parts))
    return [f"  gang           {told}"] if told else []


def _evaluation(report: dict[str, Any]) -> list[str]:
    """Return the lines on the last evaluation, of what it measured."""
    loss, accuracy = report.get("testLoss"), report.get("testAccuracy")
    lines = [f"  test loss      {loss:.4f}"] if loss is not None else []
    lines += [f"  test accuracy  {percent(accuracy)}"] if accuracy is not None else []
    perplexity, sample = report.get("testPerplexity"), report.get("sample")
    lines += [f"  perplexity     {perplexity:.2f}"] if perplexity is not None else []
    return lines + ([f"  sample         {sample!r}"] if sample else [])
