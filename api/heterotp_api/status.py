"""Status of a HeteroTPJob, as written by the operator."""

from typing import Any, Literal, get_args

from pydantic import Field

from heterotp_api.base import Model
from heterotp_api.causes import CauseKind
from heterotp_api.conditions import CONDITIONS, Condition
from heterotp_api.stages import Stage

Phase = Literal["Pending", "Starting", "Running", "Restarting", "Suspended", "Succeeded", "Failed"]
PHASES: tuple[Phase, ...] = get_args(Phase)
ENDED_PHASES: tuple[Phase, ...] = ("Succeeded", "Failed")
WaitingFor = Literal[
    "Unschedulable",
    "ImagePull",
    "DNS",
    "Quota",
    "Admission",
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


MAX_BLAMED = 8  # entries of the list of ranks and stages to blame
MAX_CAUSES = 8  # of slow ranks
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
    desired: int = Field(description="Pods that the group has when complete.")
    ready: int = Field(0, description="Pods that run and are ready.")
    active: int = Field(0, description="Pods that have not ended.")
    succeeded: int = Field(0, description="Pods that ended well.")
    failed: int = Field(0, description="Pods that ended badly.")


class RankStatus(Model):
    """One rank: where it runs, how fast it is, what it owns. Seconds are medians of one iteration.

    `slowdown`: how many times as long its matrix products would take as the reference rank's, with nothing taken from
    it and the shares that the attempt began with.
    """

    rank: int = Field(description="Number of the rank in the job, from 0.")
    tp_rank: int = Field(description="Number of the rank in its tensor-parallel group, from 0.")
    pod: str | None = Field(None, max_length=253, description="Pod that the rank runs in.")
    node: str | None = Field(None, max_length=253, description="Node that the pod runs on.")
    device: str | None = Field(None, max_length=128, description="Device that the rank computes on.")
    compute_seconds: float | None = Field(None, description="Seconds of its own computing, waiting left out (T).")
    matmul_seconds: float | None = Field(None, description="Seconds of the matrix products of the sharded layers (M).")
    wait_seconds: float | None = Field(
        None, description="Seconds in collectives, most of them waiting for slower ranks."
    )
    relative_speed: float | None = Field(
        None, description="Work per second in matrix products, over that of the fastest rank."
    )
    slowdown: float | None = Field(
        None,
        description="chi: its matrix products, no work taken away, take so many times a normal rank's time.",
    )
    share: float | None = Field(None, description="Share of all units that it owns, 0..1.")
    pruned_ratio: float | None = Field(None, description="Share of its columns that is deleted, 0..1.")
    migrated_ratio: float | None = Field(None, description="Share of its columns that others compute, 0..1.")
    injected_slowdown: float | None = Field(
        None, description="Slow-down that all injections together ask for; 1: none."
    )
    measured_slowdown: float | None = Field(None, description="Slow-down by injections that was measured.")
    injection_problem: str | None = Field(None, max_length=256, description="Why the device cannot be slowed as asked.")
    columns_in: int | None = Field(None, description="Columns that it computes for others, over all linears.")
    heads: int | None = Field(None, description="Attention heads that it owns.")
    hidden_units: int | None = Field(None, description="Hidden units of the feed-forward networks that it owns.")
    vocabulary_rows: int | None = Field(None, description="Rows of the vocabulary that it owns.")
    straggler: bool | None = Field(None, description="Whether the other ranks wait for this one.")
    straggling_since: str | None = _since("Since when the other ranks wait for this one.")
    replaceable_since: str | None = _since("Since when its chi is at replaceThreshold or above.")


class BlameStatus(Model):
    """A rank and a stage of the iteration in which other ranks wait for it."""

    rank: int = Field(description="Number of the rank.")
    stage: Stage = Field(description="Stage in which it is late.")
    seconds: float = Field(description="Lost seconds of an iteration.")
    share: float = Field(description="Share of all lost seconds, 0..1.")


class CauseStatus(Model):
    """Why a rank is slow; what each kind means is in docs/why-is-it-slow.md."""

    rank: int = Field(description="Number of the rank.")
    kind: CauseKind = Field(description="Kind of the cause.")
    share: float = Field(description="Share of time, 0..1; of an iteration for data and network.")
    amount: float | None = Field(
        None,
        description="CPUs of the limit, slow-down of the injection, page faults a second, or part of TCP segments.",
    )


class TrainingStatus(Model):
    """Progress of the training; `accuracy` is of the test set, 0..1."""

    epoch: int | None = Field(None, description="Passes through the data so far.")
    iteration: int | None = Field(None, description="Optimizer steps so far.")
    total_iterations: int | None = Field(None, description="Optimizer steps of the whole run.")
    resumed_from: int | None = Field(None, description="Iteration of the checkpoint that this attempt began from.")
    iteration_seconds: float | None = Field(None, description="Seconds of an iteration, median of the last window.")
    iterations_per_second: float | None = Field(None, description="Iterations a second, over the last window.")
    samples_per_second: float | None = Field(None, description="Training samples a second.")
    lost_seconds: float | None = Field(None, description="Seconds of an iteration that ranks lose to late ones.")
    loss: float | None = Field(None, description="Loss of the last iteration.")
    accuracy: float | None = Field(None, description="Accuracy of the last evaluation on held-out data, 0..1.")
    perplexity: float | None = Field(
        None, description="Perplexity of the last evaluation on held-out text, of a language model."
    )
    eta_seconds: float | None = Field(None, description="Seconds until the training ends, at the present pace.")


class BalancingStatus(Model):
    """Which policy is in force and what it does."""

    policy: str | None = Field(None, max_length=253, description="Name of the BalancingPolicy; or inline, or default.")
    policy_generation: int | None = Field(None, description="metadata.generation of the policy object published last.")
    generation: int | None = Field(None, description="Generation of the control document that was published last.")
    applied_generation: int | None = Field(
        None, description="Generation of the control document that all ranks follow."
    )
    strategy: str | None = Field(None, max_length=16, description="Strategy that the policy asks for.")
    predicted_iteration_seconds: float | None = Field(
        None, description="Seconds of an iteration that the last decision predicted."
    )
    limit_iteration_seconds: float | None = Field(
        None, description="Lower bound of lossless methods: seconds of an iteration."
    )
    untouched_iteration_seconds: float | None = Field(
        None, description="Seconds that an iteration would take now without balancing."
    )
    saved_seconds: float | None = Field(None, description="Seconds that balancing saved in this run so far.")
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
    phase: Phase | None = Field(None, description="State of the job in one word; follows from the conditions.")
    attempt: int | None = Field(None, ge=0, description="Number of the gang, from 1; part of the pods' names.")
    completed_attempt: int | None = Field(None, ge=0, description="The last attempt whose pods were all made; 0: none.")
    restarts: int | None = Field(None, ge=0, description="Gang restarts that count against backoffLimit.")
    start_time: str | None = _since("When the job began, or was resumed.")
    completion_time: str | None = _since("When it ended.")
    conditions: list[Condition] | None = CONDITIONS
    waiting_for: WaitingFor | None = Field(None, description="The one thing that it waits for; empty: nothing.")
    slowest: str | None = Field(
        None,
        max_length=64,
        description="The rank of the largest chi (ranks[].slowdown) and chi, for kubectl get; absent: no rank is slow.",
    )
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
    blame: list[BlameStatus] | None = Field(
        None,
        max_length=MAX_BLAMED,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="Ranks that others wait for and their stages, the most first; absent: little is lost.",
    )
    causes: list[CauseStatus] | None = Field(
        None,
        max_length=MAX_CAUSES,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="Why ranks are slow, the slowest rank and its main cause first; absent: nothing shows why.",
    )
    stall: StallStatus | None = None
    training: TrainingStatus | None = None
    balancing: BalancingStatus | None = None
