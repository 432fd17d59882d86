"""How a job runs: suspension, restarts, deadlines, clean-up, failure rules and gang scheduling."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from heterotp_api.base import MOST_SECONDS, Model, ObjectName, Rule
from heterotp_api.schema import UNDECLARED_DEFAULT

SILENT_SECONDS = 5
ConditionType = Annotated[str, StringConstraints(min_length=1, max_length=128)]


class FailureRule(Model):
    """What to do when a rank ends with one of these exit codes, or its pod has one of these conditions."""

    on_exit_codes: list[Annotated[int, Field(ge=1, le=255)]] | None = Field(
        None, min_length=1, max_length=64, description="Exit codes of the rank that is to blame."
    )
    on_pod_conditions: list[ConditionType] | None = Field(
        None, min_length=1, max_length=16, description="Conditions that its pod has, e.g. DisruptionTarget."
    )
    action: Literal["FailJob", "RestartGang", "IgnoreCount"] = Field(
        description="FailJob ends the job; both others restart it, IgnoreCount without counting that."
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "give onExitCodes or onPodConditions, one of them",
            "has(self.onExitCodes) != has(self.onPodConditions)",
            lambda r: (r.on_exit_codes is None) != (r.on_pod_conditions is None),
        ),
    )


DISRUPTION = FailureRule(on_pod_conditions=["DisruptionTarget"], action="IgnoreCount")


class Gang(Model):
    """The gang scheduler that admits all pods of the job at once."""

    provider: Literal["none", "kueue", "volcano", "coscheduling"] = Field("none", description="The gang scheduler.")
    queue: ObjectName | None = Field(None, description="A LocalQueue (kueue) or a Queue (volcano).")
    admission: Literal["Workload", "PodGroup"] = Field(
        "Workload",
        description="With kueue: Workload (default), pods after its admission, or PodGroup, gated pods (older Kueue).",
        json_schema_extra={UNDECLARED_DEFAULT: True},  # stored jobs would get it with an upgrade
    )
    workload_priority_class_name: ObjectName | None = Field(
        None, description="Kueue's WorkloadPriorityClass: the order in the queue and of preemption."
    )
    schedule_timeout_seconds: int | None = Field(None, ge=1, le=MOST_SECONDS, description="Of the PodGroup.")
    priority_class_name: ObjectName | None = Field(None, description="PriorityClass of pods whose template names none.")

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "queue needs a provider that has queues: kueue or volcano",
            "!has(self.queue) || self.provider == 'kueue' || self.provider == 'volcano'",
            lambda g: g.queue is None or g.provider in ("kueue", "volcano"),
            "queue",
        ),
        Rule(
            "scheduleTimeoutSeconds is for provider coscheduling",
            "!has(self.scheduleTimeoutSeconds) || self.provider == 'coscheduling'",
            lambda g: g.schedule_timeout_seconds is None or g.provider == "coscheduling",
            "scheduleTimeoutSeconds",
        ),
        Rule(
            "admission PodGroup is for provider kueue",
            "!has(self.admission) || self.admission == 'Workload' || self.provider == 'kueue'",
            lambda g: g.admission == "Workload" or g.provider == "kueue",
            "admission",
        ),
        Rule(
            "workloadPriorityClassName is for provider kueue with admission Workload",
            "!has(self.workloadPriorityClassName)"
            " || self.provider == 'kueue' && (!has(self.admission) || self.admission == 'Workload')",
            lambda g: g.workload_priority_class_name is None or g.makes_workload,
            "workloadPriorityClassName",
        ),
        Rule(
            "provider kueue needs queue, the name of a LocalQueue",
            "self.provider != 'kueue' || has(self.queue)",
            lambda g: g.provider != "kueue" or g.queue is not None,
            "queue",
        ),
    )

    @property
    def makes_workload(self) -> bool:
        """Whether the job's pods wait for the admission of a Workload."""
        return self.provider == "kueue" and self.admission == "Workload"


class Elastic(Model):
    """Training goes on when ranks are lost; `heterotp run` only."""

    min_ranks: int = Field(ge=1, le=16384, description="With fewer ranks left the gang ends, as without elastic.")
    silent_after_seconds: int | None = Field(
        None, ge=1, le=MOST_SECONDS, description="A rank without heartbeats for so long is lost; absent: 5."
    )
    rejoin: bool | None = Field(None, description="Whether a rank that was killed is started again; absent: true.")

    @property
    def rejoins(self) -> bool:
        """Whether a rank that was killed is started again, and let in."""
        return self.rejoin is not False

    @property
    def silent_seconds(self) -> int:
        """Seconds without heartbeats after which a rank counts as lost."""
        return self.silent_after_seconds or SILENT_SECONDS


class RunPolicy(Model):
    """Suspension, restarts, deadlines and clean-up, as in batch/v1 where it has the same field."""

    suspend: bool = Field(False, description="Removes all pods; checkpoint and status stay.")
    backoff_limit: int = Field(3, ge=0, le=900, description="Gang restarts before the job fails.")
    active_deadline_seconds: int | None = Field(
        None, ge=1, le=MOST_SECONDS, description="Fails the job so long after startTime."
    )
    pre_running_deadline_seconds: int | None = Field(
        None, ge=1, le=MOST_SECONDS, description="Fails the job when an attempt's ranks do not train within so long."
    )
    progress_deadline_seconds: int | None = Field(
        None,
        ge=10,
        le=MOST_SECONDS,
        description="Ends a gang that ends no iteration for so long; absent: 10 iterations, at least 300 s.",
    )
    collective_timeout_seconds: int | None = Field(
        None,
        ge=1,
        le=MOST_SECONDS,
        description="How long ranks wait for each other, at the start and in a collective; absent: 300.",
    )
    ttl_seconds_after_finished: int | None = Field(
        None, ge=0, le=MOST_SECONDS, description="Deletes the job so long after its end."
    )
    clean_pod_policy: Literal["None", "Running", "All"] = Field(
        "Running", description="Pods that are deleted when the job has ended."
    )
    failure_rules: list[FailureRule] = Field(
        [DISRUPTION], max_length=16, description="First match wins; without one the gang restarts, which counts."
    )
    gang: Gang = Gang()
    elastic: Elastic | None = None
    managed_by: str | None = Field(
        None, min_length=1, max_length=63, description="Controller of the job; absent: heterotp.io/operator."
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "runPolicy.managedBy cannot change",
            "has(self.managedBy) == has(oldSelf.managedBy)"
            " && (!has(self.managedBy) || self.managedBy == oldSelf.managedBy)",
            field="managedBy",
        ),
        Rule(
            "runPolicy.gang cannot change while the job runs; set runPolicy.suspend first",
            "self.gang == oldSelf.gang || oldSelf.suspend",
            field="gang",
        ),
        Rule(
            "runPolicy.elastic works with `heterotp run` only, the operator does not act on it yet: leave it out",
            "!has(self.elastic)",
            field="elastic",
        ),
    )
