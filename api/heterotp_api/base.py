"""The base of every model: camelCase on the wire, unknown fields refused, rules written once for Python and CEL."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError


@dataclass(frozen=True)
class Rule:
    """One validation rule, said twice: as CEL for the API server and as a predicate for Python.

    `cel` is None where the schema itself already refuses (a map list refuses duplicate keys);
    `holds` is None where only the API server can judge (a comparison with the old object).
    """

    message: str
    cel: str | None = None
    holds: Callable[[Any], bool] | None = None
    field: str = ""  # dotted camelCase path below the model, e.g. "model.heads"

    def as_validation(self) -> dict[str, str]:
        """Return the entry for x-kubernetes-validations."""
        assert self.cel is not None
        entry = {"rule": self.cel, "message": self.message}
        if self.field and not self.field.startswith("metadata"):  # the schema of metadata is the API server's
            entry["fieldPath"] = "." + self.field
        return entry


class Model(BaseModel):
    """Base of all API models; subclasses list their cross-field rules in `rules`."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        strict=True,  # as the API server: "4" is no number
        ser_json_inf_nan="null",
    )
    rules: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        for rule in self.rules:
            if rule.holds is not None and not rule.holds(self):
                raise PydanticCustomError("rule", "{message}", {"message": rule.message, "field": rule.field})
        return self

    def dump(self) -> dict[str, Any]:
        """Return the JSON-ready dict with camelCase keys; absent (None) fields are left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class Metadata(Model):
    """The part of ObjectMeta that HeteroTP reads; the rest is kept as it came."""

    model_config = ConfigDict(**{**Model.model_config, "extra": "allow"})
    name: str = Field(min_length=1, max_length=253)
    namespace: str = "default"


def without_nulls(value: Any) -> Any:
    """Return a deep copy without fields that are null: to the API server they are absent."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value
