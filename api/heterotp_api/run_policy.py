"""How a job runs: suspension, restarts, deadlines, clean-up, failure rules and gang scheduling."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from heterotp_api.base import Model, Rule

ConditionType = Annotated[str, StringConstraints(min_length=1, max_length=128)]


class FailureRule(Model):
    """What to do when a rank ends with one of these exit codes, or its pod has one of these conditions."""

    on_exit_codes: list[Annotated[int, Field(ge=1, le=255)]] | None = Field(None, min_length=1, max_length=64)
    on_pod_conditions: list[ConditionType] | None = Field(None, min_length=1, max_length=16)
    action: Literal["FailJob", "RestartGang", "IgnoreCount"]

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "give onExitCodes or onPodConditions, one of them",
            "has(self.onExitCodes) != has(self.onPodConditions)",
            lambda r: (r.on_exit_codes is None) != (r.on_pod_conditions is None),
        ),
    )


DISRUPTION = FailureRule(on_pod_conditions=["DisruptionTarget"], action="IgnoreCount")


class Gang(Model):
    """Who admits all pods of the job at once."""

    provider: Literal["none", "kueue", "volcano", "coscheduling"] = "none"
    queue: str | None = Field(None, min_length=1, max_length=253)
    schedule_timeout_seconds: int | None = Field(None, ge=1)
    priority_class_name: str | None = Field(None, min_length=1, max_length=253)

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
            "provider kueue needs queue, the name of a LocalQueue",
            "self.provider != 'kueue' || has(self.queue)",
            lambda g: g.provider != "kueue" or g.queue is not None,
            "queue",
        ),
    )


class RunPolicy(Model):
    """Suspension, restarts, deadlines and clean-up, as in batch/v1 where it has the same field."""

    suspend: bool = False
    backoff_limit: int = Field(3, ge=0, le=900, description="Gang restarts before the job fails.")
    active_deadline_seconds: int | None = Field(None, ge=1)
    pre_running_deadline_seconds: int | None = Field(None, ge=1)
    ttl_seconds_after_finished: int | None = Field(None, ge=0)
    clean_pod_policy: Literal["None", "Running", "All"] = "Running"
    failure_rules: list[FailureRule] = Field([DISRUPTION], max_length=16)
    gang: Gang = Gang()
    managed_by: str | None = Field(None, min_length=1, max_length=63)

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
    )
