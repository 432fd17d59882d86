"""Status of a HeteroTPJob, as written by the operator."""

from typing import Any, Literal, get_args

from pydantic import Field

from heterotp_api.base import Model
from heterotp_api.conditions import CONDITIONS, Condition

Phase = Literal["Pending", "Starting", "Running", "Restarting", "Suspended", "Succeeded", "Failed"]
PHASES: tuple[Phase, ...] = get_args(Phase)
ENDED_PHASES: tuple[Phase, ...] = ("Succeeded", "Failed")
WaitingFor = Literal[
    "Unschedulable",
    "ImagePull",
    "DNS",
    "Quota",
    "Creation",
    "Policy",
    "Rendezvous",
    "Checkpoint",
    "Iteration",
    "Unreachable",
    "PodsTerminating",
    "",
]


def _since(description: str) -> Any:
    """Return the field of a moment."""
    return Field(None, max_length=64, json_schema_extra={"format": "date-time"}, description=description)


MAX_RANKS = 64  # a status shows at most so many ranks, the slowest first when there are more


class StallStatus(Model):
    """A gang that ends no iteration, as rank 0 reports it; absent while iterations end."""

    since: str | None = _since("When the last iteration ended, or the attempt began.")
    iteration: int | None = Field(None, description="The last iteration that ended in this attempt.")
    ranks: list[int] | None = Field(
        None,
        max_length=MAX_RANKS,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="Ranks that the others wait for.",
    )


class GroupStatus(Model):
    """Numbers of pods of one worker group."""

    name: str = Field(max_length=63, description="Name of the group.")
    desired: int = Field(description="Pods that it shall have.")
    ready: int = Field(0, description="Pods that run and are ready.")
    active: int = Field(0, description="Pods that have not ended.")
    succeeded: int = Field(0, description="Pods that ended well.")
    failed: int = Field(0, description="Pods that ended badly.")


class RankStatus(Model):
    """One rank: where it runs, how fast it is, what it owns. Seconds are medians of one iteration.

    `slowdown`: how many times as long its matrix products would take as the reference rank's, with nothing taken from
    it and the shares that the attempt began with.
    """

    rank: int = Field(description="Number in the job.")
    tp_rank: int = Field(description="Number in its tensor-parallel group.")
    pod: str | None = Field(None, max_length=253, description="Its pod.")
    node: str | None = Field(None, max_length=253, description="The pod's node.")
    device: str | None = Field(None, max_length=128, description="What it computes on.")
    compute_seconds: float | None = Field(None, description="T: all of its own computing, waiting left out.")
    matmul_seconds: float | None = Field(None, description="M: matrix products of the sharded layers.")
    wait_seconds: float | None = Field(None, description="In collectives, most of it waiting for slower ranks.")
    relative_speed: float | None = Field(None, description="Work per second of products, over the fastest rank's.")
    slowdown: float | None = Field(None, description="chi.")
    share: float | None = Field(None, description="Of all units, those that it owns, 0..1.")
    pruned_ratio: float | None = Field(None, description="Share of its columns that is deleted, 0..1.")
    migrated_ratio: float | None = Field(None, description="Share of its columns that others compute, 0..1.")
    injected_slowdown: float | None = Field(None, description="Slow-down that injections ask for; 1: none.")
    measured_slowdown: float | None = Field(None, description="Slow-down that came of it.")
    injection_problem: str | None = Field(None, max_length=256, description="Why the device cannot follow.")
    columns_in: int | None = Field(None, description="Columns that it computes for others, over all linears.")
    heads: int | None = Field(None, description="Attention heads that it owns.")
    hidden_units: int | None = Field(None, description="Hidden units of the feed-forward networks that it owns.")
    vocabulary_rows: int | None = Field(None, description="Rows of the vocabulary that it owns.")
    straggler: bool | None = Field(None, description="Whether the others wait for it.")
    straggling_since: str | None = _since("Since when they wait for it.")
    replaceable_since: str | None = _since("Since when its chi is at replaceThreshold or above.")


class TrainingStatus(Model):
    """Progress of the training; `accuracy` is of the test set, 0..1."""

    epoch: int | None = Field(None, description="Passes through the data that are done.")
    iteration: int | None = Field(None, description="Optimizer steps that are done.")
    total_iterations: int | None = Field(None, description="How many there will be.")
    resumed_from: int | None = Field(None, description="Iteration of the checkpoint that this attempt began from.")
    iteration_seconds: float | None = Field(None, description="Median of the last window.")
    iterations_per_second: float | None = Field(None, description="One over that.")
    samples_per_second: float | None = Field(None, description="Training samples a second.")
    loss: float | None = Field(None, description="Of the last iteration.")
    accuracy: float | None = Field(None, description="Of the last evaluation.")
    perplexity: float | None = Field(None, description="Of the last evaluation, of a language model.")
    eta_seconds: float | None = Field(None, description="Seconds to the end, at this pace.")


class BalancingStatus(Model):
    """Which policy is in force and what it does."""

    policy: str | None = Field(None, max_length=253, description="Name of the BalancingPolicy; or inline, or default.")
    policy_generation: int | None = Field(None, description="metadata.generation of the policy object published last.")
    generation: int | None = Field(None, description="Of the control document that was published.")
    applied_generation: int | None = Field(None, description="Of the control document that all ranks follow.")
    strategy: str | None = Field(None, max_length=16, description="What the policy asks for.")
    predicted_iteration_seconds: float | None = Field(None, description="What the last decision promised.")
    limit_iteration_seconds: float | None = Field(None, description="What no lossless method can beat.")
    untouched_iteration_seconds: float | None = Field(None, description="With no work taken from any rank.")
    saved_seconds: float | None = Field(None, description="What balancing saved in this run so far.")
    moves: int | None = Field(None, description="Times that units changed rank in this attempt.")
    decision_id: int | None = Field(
        None, description="Number of the last decision of this attempt; `reason` describes it."
    )
    reason: str | None = Field(None, max_length=1024, description="The last decision and the numbers it was taken on.")
    problem_reason: str | None = Field(
        None, max_length=64, description="Why there is a `problem`, in one CamelCase word."
    )
    problem_generation: int | None = Field(
        None, description="Generation of the control document that the ranks refused; absent for other problems."
    )
    problem: str | None = Field(None, max_length=1024, description="Why the ranks do not follow what was asked for.")


class JobStatus(Model):
    """What a HeteroTPJob reports."""

    observed_generation: int | None = Field(None, description="metadata.generation that this status is of.")
    phase: Phase | None = Field(None, description="The conditions in one word.")
    attempt: int | None = Field(None, ge=0, description="Number of the gang, from 1; part of the pods' names.")
    completed_attempt: int | None = Field(None, ge=0, description="The last attempt whose pods were all made; 0: none.")
    restarts: int | None = Field(None, ge=0, description="Gang restarts that count against backoffLimit.")
    start_time: str | None = _since("When the job began, or was resumed.")
    completion_time: str | None = _since("When it ended.")
    conditions: list[Condition] | None = CONDITIONS
    waiting_for: WaitingFor | None = Field(None, description="The one thing that it waits for; empty: nothing.")
    slowest: str | None = Field(None, max_length=64, description="The slowest rank and its speed, for kubectl get.")
    worker_groups: list[GroupStatus] | None = Field(
        None,
        max_length=18,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        description="Pods of the current attempt.",
    )
    ranks: list[RankStatus] | None = Field(
        None,
        max_length=MAX_RANKS,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="Ranks as rank 0 reports them; of more than 64 the stragglers and the slowest.",
    )
    stall: StallStatus | None = None
    training: TrainingStatus | None = None
    balancing: BalancingStatus | None = None
