"""Reads and validates manifests from files as the API server does, without one."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from heterotp_api.bounded_yaml import MOST_BYTES, TooMuch, read_documents
from heterotp_api.fields import without_null_fields
from heterotp_api.formatting import one_line
from heterotp_api.injection import StragglerInjection
from heterotp_api.job import HeteroTPJob
from heterotp_api.names import API_VERSION, GROUP
from heterotp_api.near_names import near_field
from heterotp_api.policy import BalancingPolicy

Kind = HeteroTPJob | BalancingPolicy | StragglerInjection
KINDS: dict[str, type[Kind]] = {
    "HeteroTPJob": HeteroTPJob,
    "BalancingPolicy": BalancingPolicy,
    "StragglerInjection": StragglerInjection,
}


class ManifestError(ValueError):
    """A manifest that cannot be used: which file, field and value, and what would be right."""

    def __init__(self, file: str, field: str, value: object, message: str) -> None:
        self.file, self.field, self.value, self.message = file, field, value, message
        shown = "" if value is None else f" {_short(value)}"
        where = one_line(field, 200) + ":" if field else ""
        super().__init__(one_line(f"{file}: {where}{shown}{' ' if where or shown else ''}{one_line(message, 1000)}"))


def _short(value: object) -> str:
    return one_line(repr(value) if isinstance(value, str) else str(value), 60)


def field_path(details: ErrorDetails) -> str:
    """Return the path of an error, e.g. spec.workerGroups[0].pods."""
    path = ""
    for part in details["loc"]:
        if part != "[key]":  # of a map whose key is wrong: the path names the key already
            path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    below = (details.get("ctx") or {}).get("field", "")
    return ".".join(p for p in (path, below) if p)


def first_error(error: ValidationError, model: type[BaseModel] | None = None) -> tuple[str, object, str]:
    """Return field path, value (None for a whole object) and message of the first error.

    model: the model that refused, by which the message on an unknown field names the one that is meant.
    """
    details = error.errors()[0]
    value = details["input"] if not isinstance(details["input"], (dict, list)) else None
    if details["type"] == "missing":
        return field_path(details), None, "is required"
    if details["type"] == "extra_forbidden":
        near = None if model is None else near_field(model, details["loc"])
        return field_path(details), None, f"is not a known field{f'; did you mean {near}?' if near else ''}"
    return field_path(details), (details.get("ctx") or {}).get("value", value), _message(details)


def _message(details: ErrorDetails) -> str:
    message = str(details["ctx"]["error"]) if details["type"] == "value_error" else details["msg"]
    return message if details["type"] == "rule" else message[0].lower() + message[1:]


def parse_object(body: dict[str, Any], file: str = "manifest") -> Kind:
    """Return the validated object; raise ManifestError naming file, field and value."""
    if body.get("apiVersion") != API_VERSION:
        raise ManifestError(file, "apiVersion", body.get("apiVersion"), f"must be {API_VERSION}")
    kind = KINDS.get(str(body.get("kind")))
    if kind is None:
        raise ManifestError(file, "kind", body.get("kind"), f"must be one of {', '.join(KINDS)}")
    for field, value, message in _not_json(body, ""):
        raise ManifestError(file, field, value, message)
    try:
        return kind.model_validate(without_null_fields(body, kind), by_alias=True, by_name=False)
    except ValidationError as error:
        raise ManifestError(file, *first_error(error, kind)) from None


def _not_json(value: Any, path: str) -> Iterator[tuple[str, Any, str]]:
    """Yield path, value and complaint of numbers that YAML can hold and the API server's JSON cannot."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _not_json(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _not_json(inner, f"{path}[{index}]")
    elif isinstance(value, float) and not math.isfinite(value):
        yield path, value, "must be a finite number"
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        yield path, value, "must fit into 64 bits"


def load_manifest(path: Path) -> list[Kind]:
    """Return our objects of a YAML file; raise ManifestError on the first bad one, or where none is ours."""
    return parse_objects(load_bodies(path), path)


def parse_objects(bodies: Sequence[dict[str, Any]], path: Path) -> list[Kind]:
    """Return our objects among those of a file; raise ManifestError on the first bad one, or where none is ours."""
    ours = [body for body in bodies if not is_foreign(body)]
    return [parse_object(_whole_numbers(body), str(path)) for body in ours or bodies]


def is_foreign(body: dict[str, Any]) -> bool:
    """Return whether an object is of another project's kind (a queue beside a job), which is not validated here."""
    group = str(body.get("apiVersion") or GROUP).partition("/")[0]
    return group != GROUP and bool(body.get("kind")) and str(body["kind"]) not in KINDS


def load_bodies(path: Path) -> list[dict[str, Any]]:
    """Return all objects of a YAML file as they stand there; raise ManifestError where it holds something else."""
    try:
        bodies = [body for body in read_documents(_read(path)) if body is not None]
    except OSError as error:
        raise ManifestError(str(path), "", None, f"cannot be read: {error.strerror}") from None
    except TooMuch as error:
        raise ManifestError(str(path), "", None, str(error)) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ManifestError(str(path), "", None, f"is not YAML: {' '.join(str(error).split())}") from None
    if not bodies:
        raise ManifestError(str(path), "", None, "holds no object")
    for body in bodies:
        if not isinstance(body, dict):
            raise ManifestError(str(path), "", None, f"must hold objects, not a {type(body).__name__}")
    return bodies


def _read(path: Path) -> str:
    """Return the text of a file; raise TooMuch, OSError or UnicodeDecodeError."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise TooMuch(f"is larger than {MOST_BYTES} bytes: a manifest is at most 1 MiB")
    return data.decode("utf-8")


def _whole_numbers(value: Any) -> Any:
    """Return the value with 4.0 and 1e1 as the whole numbers that they are to kubectl."""
    if isinstance(value, dict):
        return {key: _whole_numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**63 else value
