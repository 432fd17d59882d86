"""The document report.json: the result of a run. Rank 0 writes it, or `heterotp run` where rank 0 could not.

docs/report.md documents every key; a key that was never measured is null, not absent.
"""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from heterotp_api.base import Model
from heterotp_api.formatting import utc_time
from heterotp_api.run_journal import DecisionRecord, InjectionRecord, LeftOut, MoveRecord, RunJournal, ShareRecord
from heterotp_api.summary import TimeSummary
from heterotp_api.trainer_status import TrainerGang, TrainerStatus

RunState = Literal["starting", "running", "stopping", "succeeded", "stopped", "failed"]


class RankReport(Model):
    """One rank; times are medians of the last window, seconds per iteration."""

    rank: int
    group: str = Field(description="Worker group of the rank.")
    share: float | None = Field(None, description="Share of the units that it owns, 0..1.")
    compute_seconds: float | None = Field(None, description="Sum of the three times below.")
    matmul_seconds: float | None = Field(None, description="Matrix products of the sharded layers.")
    unit_seconds: float | None = Field(None, description="Other work on owned units.")
    fixed_seconds: float | None = Field(None, description="Work that is the same on every rank.")
    wait_seconds: float | None = Field(None, description="Collectives, most of it waiting for slower ranks.")
    relative_speed: float | None = Field(None, description="Matrix-product work per second; fastest rank: 1.")
    pruned_ratio: float | None = Field(None, description="Share of its columns that is deleted.")
    migrated_ratio: float | None = Field(None, description="Share of its columns that other ranks compute.")
    injected_slowdown: float | None = Field(None, description="Slow-down that injections ask for; 1 without.")
    measured_slowdown: float | None = Field(None, description="Slow-down measured.")
    slowdown: float | None = Field(None, description="chi: times slower than the reference rank.")


class BlameReport(Model):
    """A rank and a stage that the others waited for in the last window."""

    rank: int
    stage: str = Field(description="Stage of an iteration, see docs/algorithms.md.")
    seconds: float = Field(description="Lost seconds of an iteration, mean.")
    steady_seconds: float = Field(0.0, description="The same, median.")
    share: float = Field(0.0, description="Share of all lost seconds, 0..1.")


class CauseReport(Model):
    """Why a rank was slow in the last window."""

    rank: int
    kind: str = Field(description="Kind of the cause, see docs/why-is-it-slow.md.")
    share: float = Field(0.0, description="Share of time, 0..1.")
    amount: float | None = Field(None, description="A number of the kind's own unit.")


class RunReport(Model):
    """The result of a run; seconds are of the last attempt, the lists of all attempts."""

    job: str
    state: RunState
    attempt: int = Field(description="How often the job was started in the run directory.")
    started_at: str | None = Field(None, description="Start of the attempt: UTC, ISO 8601.")
    ended_at: str | None = Field(None, description="End of the attempt: UTC, ISO 8601.")
    iterations: int = Field(0, description="Optimizer steps of all attempts.")
    epochs: int = Field(0, description="Passes through the data of all attempts.")
    train_loss: float | None = Field(None, description="Loss of the last iteration.")
    test_loss: float | None = Field(None, description="Of the last evaluation.")
    test_accuracy: float | None = Field(None, description="Of the last evaluation, 0..1; None where there is none.")
    test_perplexity: float | None = Field(None, description="Of the last evaluation; None but for language models.")
    sample: str = Field("", description="Text that a language model wrote at the last evaluation.")
    iteration_seconds: TimeSummary = Field(TimeSummary(), description="Over the measured iterations.")
    limit_iteration_seconds: float | None = Field(None, description="The fluid limit.")
    predicted_iteration_seconds: float | None = Field(None, description="Prediction of the last decision.")
    strategy: str | None = Field(None, description="Balancing strategy in force at the end.")
    decision_id: int = Field(0, description="Number of the last decision; 0: none was made.")
    reason: str = Field("", description="What the last decision was, and on which numbers.")
    emulated: bool = Field(False, description="Whether times come from emulated devices.")
    saved_seconds: float = Field(0.0, description="What balancing saved over the run.")
    deleted_share: float = Field(0.0, description="Share of all work of the run that was deleted, 0..1.")
    lost_seconds: float | None = Field(None, description="What late ranks cost an iteration of the last window.")
    blame: tuple[BlameReport, ...] = Field((), description="By whom and in which stage, the most first.")
    causes: tuple[CauseReport, ...] = Field((), description="Why ranks are slow, the slowest rank's main one first.")
    skipped_updates: int = Field(0, description="Updates of the attempt left out for values that were not finite.")
    gang: TrainerGang | None = Field(None, description="Who was left at the end; None but with runPolicy.elastic.")
    ranks: tuple[RankReport, ...] = Field((), description="All ranks, in order.")
    decisions: tuple[DecisionRecord, ...] = Field((), description="What was decided, on which numbers.")
    moves: tuple[MoveRecord, ...] = Field((), description="Moves of units between ranks.")
    injections: tuple[InjectionRecord, ...] = Field((), description="Ranks that injections slowed.")
    shares: tuple[ShareRecord, ...] = Field((), description="Shares of the ranks, where they changed.")
    left_out: LeftOut = Field(LeftOut(), description="Entries of the four lists that were left out.")

    def document(self) -> dict[str, Any]:
        """Return the JSON-ready dict with camelCase keys, all of them; None where nothing was measured."""
        document: dict[str, Any] = _lists(self.model_dump(by_alias=True))
        return document


def _lists(value: Any) -> Any:
    """Return the value with lists in place of tuples, as JSON is read back."""
    if isinstance(value, dict):
        return {key: _lists(inner) for key, inner in value.items()}
    return [_lists(inner) for inner in value] if isinstance(value, (tuple, list)) else value


def run_report(
    status: TrainerStatus,
    groups: Sequence[str],
    iteration_seconds: TimeSummary,
    journal: RunJournal | None = None,
    ended_at: float | None = None,
) -> RunReport:
    """Return the report of a run by its last status; groups: the worker group of every rank; ended_at: unix seconds."""
    measured = [name for name in RankReport.model_fields if name != "group"]
    return RunReport(
        job=status.job,
        state=status.state,
        attempt=status.attempt,
        started_at=utc_time(status.started_at),
        ended_at=None if ended_at is None else utc_time(ended_at),
        iterations=status.iteration,
        epochs=status.epoch,
        train_loss=status.loss,
        test_loss=status.test_loss,
        test_accuracy=status.accuracy,
        test_perplexity=status.perplexity,
        sample=status.sample,
        iteration_seconds=iteration_seconds,
        limit_iteration_seconds=status.limit_iteration_seconds,
        predicted_iteration_seconds=status.predicted_iteration_seconds,
        strategy=status.strategy,
        decision_id=status.decision_id,
        reason=status.reason,
        emulated=status.emulated,
        saved_seconds=status.saved_seconds,
        deleted_share=status.deleted_share,
        lost_seconds=status.lost_seconds,
        blame=tuple(
            BlameReport(**{name: getattr(each, name) for name in BlameReport.model_fields}) for each in status.blame
        ),
        causes=tuple(
            CauseReport(**{name: getattr(each, name) for name in CauseReport.model_fields}) for each in status.causes
        ),
        skipped_updates=status.skipped_updates,
        gang=status.gang,
        ranks=tuple(
            RankReport(group=groups[rank.rank], **{name: getattr(rank, name) for name in measured})
            for rank in status.ranks
        ),
        **{name: getattr(journal or RunJournal(), name) for name in RunJournal.model_fields},
    )
