"""The base of every model: camelCase on the wire, unknown fields refused, rules written once for Python and CEL."""

import re
from collections.abc import Callable, Mapping
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


DNS_LABEL = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"  # labels with dots between them
_LABEL_NAME = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
LabelKey = Annotated[
    str, StringConstraints(max_length=317, pattern=rf"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?{_LABEL_NAME}$")
]
LabelValue = Annotated[str, StringConstraints(max_length=63, pattern=f"^({_LABEL_NAME})?$")]
ObjectName = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=DNS_NAME)]
# no file name holds NUL; line breaks and other control characters are mistakes
DirectoryName = Annotated[str, StringConstraints(min_length=1, max_length=1024, pattern=r"^[^\x00-\x1f]+$")]
MOST_SECONDS = 365 * 24 * 3600  # of a timeout
MOST_ANNOTATIONS_BYTES = 256 * 1024  # of one object, as the API server
GENERATED_ROOM = 58  # characters of generateName that the API server keeps
GENERATED_TAIL = "local"  # as long as the random tail that the API server appends


def annotations_bytes(annotations: Mapping[str, str]) -> int:
    """Return the length of all keys and values, bytes."""
    return sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())


def generated_name(start: str) -> str:
    """Return the name for a generateName: as long as the API server's, the same in every run on a machine."""
    return start[:GENERATED_ROOM] + GENERATED_TAIL


class Metadata(Model):
    """ObjectMeta: what people write is checked as the API server does, what the server writes is kept as it came.

    An object with generateName alone gets a name as long as the API server would give it.
    """

    generate_name: str | None = Field(None, pattern="^[a-z0-9][-a-z0-9.]*$")
    name: str = Field(min_length=1, max_length=253)
    namespace: str = Field("default", max_length=63, pattern=DNS_LABEL)
    labels: dict[LabelKey, LabelValue] | None = None
    annotations: dict[LabelKey, str] | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    finalizers: list[str] | None = None
    owner_references: list[dict[str, Any]] | None = None
    managed_fields: list[dict[str, Any]] | None = None
    self_link: str | None = None

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "must be a DNS name: lower-case letters, digits, '-' and '.', a letter or digit at both ends",
            holds=lambda m: re.fullmatch(DNS_NAME, m.name) is not None,
            field="name",
        ),
        Rule(
            f"must hold at most {MOST_ANNOTATIONS_BYTES} bytes together",
            holds=lambda m: annotations_bytes(m.annotations or {}) <= MOST_ANNOTATIONS_BYTES,
            field="annotations",
        ),
    )

    @model_validator(mode="before")
    @classmethod
    def _generated(cls, given: Any) -> Any:
        start = given.get("generateName") if isinstance(given, dict) and not given.get("name") else None
        if not isinstance(start, str) or not start:
            return given
        return {**given, "name": generated_name(start)}

    @property
    def is_generated(self) -> bool:
        """Whether the name stands for one that the API server is asked to make."""
        return self.generate_name is not None and self.name == generated_name(self.generate_name)


def without_nulls(value: Any) -> Any:
    """Return a deep copy without fields that are null: to the API server they are absent."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value
