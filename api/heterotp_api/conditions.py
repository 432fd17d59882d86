"""Conditions, as in meta/v1."""

from typing import Any, Literal

from pydantic import Field

from heterotp_api.base import Model


class Condition(Model):
    """One observed aspect of an object."""

    type: str = Field(max_length=64)
    status: Literal["True", "False", "Unknown"]
    reason: str = Field("", max_length=128)
    message: str = Field("", max_length=32768)
    last_transition_time: str | None = Field(None, max_length=64, json_schema_extra={"format": "date-time"})
    observed_generation: int | None = None


CONDITIONS: Any = Field(
    None,
    max_length=32,
    json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
)
