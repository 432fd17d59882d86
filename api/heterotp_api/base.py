"""The base of every model: camelCase on the wire, unknown fields refused, rules written once for Python and CEL."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel, to_snake
from pydantic_core import PydanticCustomError


@dataclass(frozen=True)
class Rule:
    """One validation rule in two forms: as CEL for the API server and as a predicate for Python.

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
                context = {"message": rule.message, "field": rule.field, "value": _scalar_at(self, rule.field)}
                raise PydanticCustomError("rule", "{message}", context)
        return self

    def dump(self) -> dict[str, Any]:
        """Return the JSON-ready dict with camelCase keys; absent (None) fields are left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def _scalar_at(value: Any, path: str) -> Any:
    """Return what stands at a dotted camelCase path, None where it is no scalar."""
    for part in filter(None, path.split(".")):
        value = getattr(value, to_snake(part), None)
    return value if isinstance(value, (str, int, float)) else None


LabelKey = Annotated[
    str,
    StringConstraints(max_length=317, pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-\w.]*[A-Za-z0-9])?$"),
]
LabelValue = Annotated[str, StringConstraints(max_length=63, pattern=r"^([A-Za-z0-9]([-\w.]*[A-Za-z0-9])?)?$")]


class Metadata(Model):
    """ObjectMeta: what people write is checked as the API server does, what the server writes is kept as it came."""

    name: str = Field(min_length=1, max_length=253)
    namespace: str = Field("default", max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    labels: dict[LabelKey, LabelValue] | None = None
    annotations: dict[LabelKey, str] | None = None
    generate_name: Any = None
    uid: Any = None
    resource_version: Any = None
    generation: Any = None
    creation_timestamp: Any = None
    deletion_timestamp: Any = None
    deletion_grace_period_seconds: Any = None
    finalizers: Any = None
    owner_references: Any = None
    managed_fields: Any = None
    self_link: Any = None


def without_nulls(value: Any) -> Any:
    """Return a deep copy without fields that are null: to the API server they are absent."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value
