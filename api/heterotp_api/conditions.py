"""Conditions, as in meta/v1, and their types, each defined once."""

from typing import Any, Literal

from pydantic import Field

from heterotp_api.base import Model

# types of a job's conditions
ADMITTED = "Admitted"  # by Kueue
CREATED = "Created"
PODS_READY = "PodsReady"
RUNNING = "Running"  # also a phase
STRAGGLING = "Straggling"
REPLACEMENT_ADVISED = "ReplacementAdvised"
STALLED = "Stalled"
RESTARTING = "Restarting"  # also a phase
SPEC_CHANGE_PENDING = "SpecChangePending"
SUSPENDED = "Suspended"  # also a phase
SUCCEEDED = "Succeeded"  # also a phase
FAILED = "Failed"  # also a phase
JOB_CONDITIONS = (
    *(ADMITTED, CREATED, PODS_READY, RUNNING, STALLED, STRAGGLING, REPLACEMENT_ADVISED),
    *(RESTARTING, SPEC_CHANGE_PENDING, SUSPENDED, SUCCEEDED, FAILED),
)

# types of the conditions of a policy; Accepted also of an injection
ACCEPTED = "Accepted"
CONFLICT = "Conflict"
APPLIED = "Applied"


class Condition(Model):
    """One observed aspect of an object."""

    type: str = Field(max_length=64, description="The aspect.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    reason: str = Field("", max_length=128, description="Why, in one CamelCase word.")
    message: str = Field("", max_length=32768, description="Why, for people.")
    last_transition_time: str | None = Field(
        None, max_length=64, json_schema_extra={"format": "date-time"}, description="When `status` changed last."
    )
    observed_generation: int | None = Field(None, description="metadata.generation that the condition is of.")


CONDITIONS: Any = Field(
    None,
    description="What holds of the object, by type.",
    max_length=32,
    json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
)
