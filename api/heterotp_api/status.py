"""Status of a HeteroTPJob, as written by the operator."""

from typing import Any, Literal

from pydantic import Field

from heterotp_api.base import Model
from heterotp_api.conditions import CONDITIONS, Condition

Phase = Literal["Pending", "Starting", "Running", "Restarting", "Suspended", "Succeeded", "Failed"]
WaitingFor = Literal[
    "Unschedulable",
    "ImagePull",
    "DNS",
    "Quota",
    "Creation",
    "Policy",
    "Rendezvous",
    "Checkpoint",
    "Unreachable",
    "PodsTerminating",
    "",
]
SINCE: Any = Field(None, max_length=64, json_schema_extra={"format": "date-time"})
MAX_RANKS = 64  # a status shows at most so many ranks, the slowest first when there are more


class GroupStatus(Model):
    """Pods of one worker group, counted."""

    name: str = Field(max_length=63)
    desired: int
    ready: int = 0
    active: int = 0
    succeeded: int = 0
    failed: int = 0


class RankStatus(Model):
    """One rank: where it runs, how fast it is, what it owns. Seconds are medians of one iteration.

    `slowdown`: how many times as long its matrix products would take as the reference rank's, with nothing taken from
    it and the shares that the attempt began with.
    """

    rank: int
    tp_rank: int
    pod: str | None = Field(None, max_length=253)
    node: str | None = Field(None, max_length=253)
    device: str | None = Field(None, max_length=128)
    compute_seconds: float | None = None
    matmul_seconds: float | None = None
    wait_seconds: float | None = None
    relative_speed: float | None = None
    slowdown: float | None = None
    share: float | None = None
    pruned_ratio: float | None = None
    migrated_ratio: float | None = None
    injected_slowdown: float | None = None
    measured_slowdown: float | None = None
    injection_problem: str | None = Field(None, max_length=256)
    columns_in: int | None = Field(None, description="Columns that it computes for others, over all linears.")
    heads: int | None = Field(None, description="Attention heads that it owns.")
    hidden_units: int | None = Field(None, description="Hidden units of the feed-forward networks that it owns.")
    straggler: bool | None = Field(None, description="Whether the others wait for it.")
    straggling_since: str | None = SINCE
    replaceable_since: str | None = SINCE


class TrainingStatus(Model):
    """Progress of the training; `accuracy` is of the test set, 0..1."""

    epoch: int | None = None
    iteration: int | None = None
    total_iterations: int | None = None
    resumed_from: int | None = None
    iteration_seconds: float | None = None
    iterations_per_second: float | None = None
    samples_per_second: float | None = None
    loss: float | None = None
    accuracy: float | None = None
    eta_seconds: float | None = None


class BalancingStatus(Model):
    """Which policy is in force and what it does."""

    policy: str | None = Field(None, max_length=253)
    policy_generation: int | None = Field(None, description="metadata.generation of the policy object published last.")
    generation: int | None = None
    applied_generation: int | None = None
    strategy: str | None = Field(None, max_length=16)
    predicted_iteration_seconds: float | None = None
    limit_iteration_seconds: float | None = None
    untouched_iteration_seconds: float | None = Field(None, description="With no work taken from any rank.")
    saved_seconds: float | None = Field(None, description="What balancing saved in this run so far.")
    moves: int | None = Field(None, description="Times that units changed rank in this attempt.")
    reason: str | None = Field(None, max_length=1024, description="The last decision and the numbers it was taken on.")
    problem: str | None = Field(None, max_length=1024, description="Why the ranks do not follow what was asked for.")


class JobStatus(Model):
    """What a HeteroTPJob reports."""

    observed_generation: int | None = None
    phase: Phase | None = None
    attempt: int | None = Field(None, ge=0)
    restarts: int | None = Field(None, ge=0)
    start_time: str | None = SINCE
    completion_time: str | None = SINCE
    conditions: list[Condition] | None = CONDITIONS
    waiting_for: WaitingFor | None = None
    slowest: str | None = Field(None, max_length=64, description="The slowest rank and its speed, for kubectl get.")
    worker_groups: list[GroupStatus] | None = Field(
        None,
        max_length=18,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    ranks: list[RankStatus] | None = Field(
        None, max_length=MAX_RANKS, json_schema_extra={"x-kubernetes-list-type": "atomic"}
    )
    training: TrainingStatus | None = None
    balancing: BalancingStatus | None = None
