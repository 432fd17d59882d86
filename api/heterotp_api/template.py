"""Checks of a pod template that the models leave out: the shape that the operator relies on."""

from collections.abc import Iterator
from typing import Any

from heterotp_api.job import HeteroTPJobSpec
from heterotp_api.names import CONTAINER

MAPS = ("metadata", "metadata.labels", "metadata.annotations", "spec", "spec.securityContext")
LISTS = ("spec.containers", "spec.initContainers", "spec.volumes", "spec.schedulingGates")
CONTAINER_LISTS = ("command", "args", "env", "ports", "volumeMounts")
STRINGS = ("command", "args")


def template_error(spec: HeteroTPJobSpec) -> str | None:
    """Return field path, value and what would be right of the first template that is none; None: all are well."""
    for index, group in enumerate(spec.worker_groups):
        where = f"workerGroups[{index}].template"
        for path, value, wanted in _errors(group.template, spec.training is None):
            return f"spec.{where}.{path}: {_short(value)}{wanted}"
    return None


def _short(value: Any) -> str:
    return "" if value is None else f"{str(value)[:80]!r} "


def _at(template: Any, path: str) -> Any:
    for part in path.split("."):
        template = template.get(part) if isinstance(template, dict) else None
    return template


def _errors(template: dict[str, Any], own_command: bool) -> Iterator[tuple[str, Any, str]]:
    for path in MAPS:
        if not isinstance(value := _at(template, path), dict | None):
            yield path, value, "must be a map"
    for path in LISTS:
        if not _is_list_of(value := _at(template, path), dict):
            yield path, value, "must be a list of maps"
    containers = _at(template, "spec.containers") or []
    for field, listed in (("containers", containers), ("initContainers", _at(template, "spec.initContainers") or [])):
        for number, container in enumerate(listed):
            yield from _container_errors(f"spec.{field}[{number}]", container)
    mine: dict[str, Any] = next((c for c in containers if c.get("name") == CONTAINER), {})
    for field in ("command", "args"):
        if not own_command and mine.get(field):
            yield f"spec.containers: {CONTAINER}: {field}", mine[field], "must be absent where training is given"
    if own_command and not (mine.get("command") or mine.get("args")):
        yield "spec.containers", None, f"without training the container {CONTAINER} must have the command to run"


def _container_errors(where: str, container: dict[str, Any]) -> Iterator[tuple[str, Any, str]]:
    for field in CONTAINER_LISTS:
        item = str if field in STRINGS else dict
        if not _is_list_of(value := container.get(field), item):
            yield f"{where}.{field}", value, f"must be a list of {'strings' if item is str else 'maps'}"
        elif field == "env":
            for number, variable in enumerate(value or ()):
                if not isinstance(variable.get("name"), str):
                    yield f"{where}.env[{number}].name", variable.get("name"), "must be a string"
    if not isinstance(value := container.get("securityContext"), dict | None):
        yield f"{where}.securityContext", value, "must be a map"


def _is_list_of(value: Any, item: type) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(each, item) for each in value))
