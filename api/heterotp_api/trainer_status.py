"""The status document: what rank 0 answers to GET /status."""

from typing import Literal

from pydantic import AliasChoices, ConfigDict, Field

from heterotp_api.base import Model

TrainerState = Literal["starting", "running", "stopping", "succeeded", "failed"]
InjectionState = Literal["waiting", "active", "paused", "finished", "lapsed"]


class _Report(Model):
    # a newer trainer may send fields that an older operator does not have
    model_config = ConfigDict(**{**Model.model_config, "extra": "ignore"})


class TrainerRank(_Report):
    """One rank's medians of the last window, seconds per iteration.

    `full_matmul_seconds`: time of the matrix products without work reduction. `slowdown`: chi, how many times
    longer these products take than the rank's work should at the speed that its first share was made for.
    `straggler`: other ranks wait for this rank, which is false for a slow rank whose units have moved away.
    `pruned_ratio`, `migrated_ratio`: shares of the rank's columns that are deleted, and that other ranks
    compute, 0..1. `columns_out`, `columns_in`: columns that are migrated to other ranks, and from them,
    summed over all linears; `migrated_bytes`: sent and received for them in an iteration.
    `injected_slowdown`: requested by injections; `measured_slowdown`: reached; `injection_problem`: why the
    device cannot follow.
    """

    rank: int
    tp_rank: int
    device: str
    compute_seconds: float | None = None
    matmul_seconds: float | None = None
    full_matmul_seconds: float | None = None
    unit_seconds: float | None = None
    fixed_seconds: float | None = None
    wait_seconds: float | None = None
    data_seconds: float | None = None
    control_seconds: float | None = None
    relative_speed: float | None = None
    slowdown: float | None = None
    share: float | None = None
    heads: int = 0
    hidden_units: int = 0
    pruned_ratio: float = 0.0
    migrated_ratio: float = 0.0
    columns_out: int = 0
    columns_in: int = 0
    migrated_bytes: float = 0.0
    injected_slowdown: float = 1.0
    measured_slowdown: float | None = None
    injection_problem: str = ""
    straggler: bool = False


class TrainerInjection(_Report):
    """One injection of the control document: its state and the ranks that it slows now (pattern: the rank in turn).

    `lapsed` means that the lease ran out, because no operator renewed it. `seconds` is how long it has been in effect.
    """

    uid: str
    state: InjectionState
    ranks: tuple[int, ...] = ()
    seconds: float = 0.0


class TrainerStatus(_Report):
    """The whole job as rank 0 reports it; `test_loss` and `accuracy` (0..1) are of the last evaluation.

    `control_error`: why the newest control document was refused, empty where it was not; `control_error_generation`:
    the generation of the refused document, absent where it names none (then it is not JSON, or not an object).
    While the state is "starting" a checkpoint may still be restored: `iteration` is not valid yet.
    `stalled_seconds`: time since the last iteration, absent unless it is far longer than one; `stalled_by`: the ranks
    that the others wait for; `stall`: where the ranks are, for people.
    `decision_id` counts decisions; `reason` is one sentence about the last one and its numbers, which holds from
    `decision_iteration` on and was made at `decision_at` (unix seconds).
    `untouched_iteration_seconds`: time of an iteration without reduced work (absent where no rank's work is reduced and
    all units are at their first ranks); `saved_seconds`: the sum of what was saved over the run. `deleted_share`: the
    part of all work of the run that was deleted, 0..1. `skipped_updates`: updates of this attempt that were left out,
    because loss or gradients were not finite. `moves`: times that units changed rank in this attempt, which took
    `moved_seconds`. `lease_expired`: injections are dropped until an operator renews the lease.
    """

    schema_version: Literal[1] = 1
    job: str
    attempt: int
    state: TrainerState
    message: str = ""
    stalled_seconds: float | None = None
    stalled_by: tuple[int, ...] = ()
    stall: str = ""
    started_at: float
    epoch: int = 0
    iteration: int = 0
    total_iterations: int | None = None
    resumed_from: int | None = None
    iteration_seconds: float | None = None
    samples_per_second: float | None = None
    loss: float | None = None
    test_loss: float | None = None
    accuracy: float | None = None
    eta_seconds: float | None = None
    applied_generation: int = 0
    control_generation: int = 0
    control_error: str = ""
    control_error_generation: int | None = None
    strategy: str = "None"
    plan_hash: str = ""
    # planId: name of the field in trainers before 0.1.0, which may still run; remove the alias after that release
    decision_id: int = Field(0, validation_alias=AliasChoices("decisionId", "planId"))
    decision_iteration: int = 0
    decision_at: float | None = None
    reason: str = ""
    predicted_iteration_seconds: float | None = None
    limit_iteration_seconds: float | None = None
    untouched_iteration_seconds: float | None = None
    saved_seconds: float = 0.0
    deleted_share: float = 0.0
    skipped_updates: int = 0
    moves: int = 0
    moved_seconds: float = 0.0
    emulated: bool = False
    ranks: tuple[TrainerRank, ...] = ()
    injections: tuple[TrainerInjection, ...] = ()
    lease_expired: bool = False
