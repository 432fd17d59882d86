"""The document report.json: the result of a run. Rank 0 writes it, or `heterotp run` where rank 0 could not.

docs/report.md documents every key; a key that was never measured is null, not absent.
"""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from heterotp_api.base import Model
from heterotp_api.summary import TimeSummary
from heterotp_api.trainer_status import TrainerStatus

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


class RunReport(Model):
    """The result of a run; seconds are of the last attempt."""

    job: str
    state: RunState
    attempt: int = Field(description="How often the job was started in the run directory.")
    iterations: int = Field(0, description="Optimizer steps of all attempts.")
    epochs: int = Field(0, description="Passes through the data of all attempts.")
    train_loss: float | None = Field(None, description="Loss of the last iteration.")
    test_loss: float | None = Field(None, description="Of the last evaluation.")
    test_accuracy: float | None = Field(None, description="Of the last evaluation, 0..1; None where there is none.")
    iteration_seconds: TimeSummary = Field(TimeSummary(), description="Over the measured iterations.")
    limit_iteration_seconds: float | None = Field(None, description="The fluid limit.")
    predicted_iteration_seconds: float | None = Field(None, description="Prediction of the last decision.")
    strategy: str | None = Field(None, description="Balancing strategy in force at the end.")
    decision_id: int = Field(0, description="Number of the last decision; 0: none was made.")
    reason: str = Field("", description="What the last decision was, and on which numbers.")
    emulated: bool = Field(False, description="Whether times come from emulated devices.")
    ranks: tuple[RankReport, ...] = Field((), description="All ranks, in order.")

    def document(self) -> dict[str, Any]:
        """Return the JSON-ready dict with camelCase keys, all of them; None where nothing was measured."""
        return self.model_dump(by_alias=True) | {"ranks": [rank.model_dump(by_alias=True) for rank in self.ranks]}


def run_report(status: TrainerStatus, groups: Sequence[str], iteration_seconds: TimeSummary) -> RunReport:
    """Return the report of a run by its last status; groups: the worker group of every rank."""
    measured = [name for name in RankReport.model_fields if name != "group"]
    return RunReport(
        job=status.job,
        state=status.state,
        attempt=status.attempt,
        iterations=status.iteration,
        epochs=status.epoch,
        train_loss=status.loss,
        test_loss=status.test_loss,
        test_accuracy=status.accuracy,
        iteration_seconds=iteration_seconds,
        limit_iteration_seconds=status.limit_iteration_seconds,
        predicted_iteration_seconds=status.predicted_iteration_seconds,
        strategy=status.strategy,
        decision_id=status.decision_id,
        reason=status.reason,
        emulated=status.emulated,
        ranks=tuple(
            RankReport(group=groups[rank.rank], **{name: getattr(rank, name) for name in measured})
            for rank in status.ranks
        ),
    )
