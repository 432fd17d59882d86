"""Checks of a pod template that the models leave out: the shape that the operator relies on."""

import re
from collections.abc import Iterator
from typing import Any

from heterotp_api.base import DNS_LABEL, MOST_ANNOTATIONS_BYTES, MOST_SECONDS, annotations_bytes
from heterotp_api.excess import MOST_OF_TEMPLATE, excess_of
from heterotp_api.job import HeteroTPJobSpec
from heterotp_api.names import CONTAINER

MAPS = ("metadata", "spec", "spec.securityContext")
STRING_MAPS = ("metadata.labels", "metadata.annotations")
CONTAINERS = ("containers", "initContainers")
LISTS = ("spec.containers", "spec.initContainers", "spec.volumes", "spec.schedulingGates")
CONTAINER_LISTS = ("command", "args", "env", "ports", "volumeMounts")
STRINGS = ("command", "args")
VARIABLE = "[ -<>-~]+"
MOST_TEXT = 2**16  # bytes of an argument or variable; Linux starts no process with one of 128 KiB
UNFIT = f"must hold no NUL and at most {MOST_TEXT} bytes each"
MOST_NAME = 63  # characters of a container's name
Complaint = tuple[str, Any, str]  # path below the template, value, what would be right


def template_error(spec: HeteroTPJobSpec) -> str | None:
    """Return field path, value and what would be right of the first template that is none; None: all are well."""
    for index, group in enumerate(spec.worker_groups):
        where = f"workerGroups[{index}].template"
        for path, value, wanted in _errors(group.template, spec.training is None):
            return f"spec.{'.'.join(filter(None, (where, path)))}: {_short(value)}{wanted}"
    return None


def checkpoint_error(spec: HeteroTPJobSpec) -> str | None:
    """Return field path, value and what would be right where rank 0's pod has no volume at checkpoint.path.

    Of a valid template, for a cluster: on one machine every directory will do.
    """
    path = spec.checkpoint.path if spec.checkpoint is not None else None
    if path is None:
        return None
    mounts = [m for m in _mounts(spec.worker_groups[0].template) if _lies_in(path, str(m.get("mountPath") or ""))]
    nearest = max(mounts, key=lambda mount: len(str(mount["mountPath"])), default={"readOnly": True})
    if not nearest.get("readOnly"):
        return None
    advice = f"mount a writable one in container {CONTAINER} of workerGroups[0].template, or use persistentVolumeClaim"
    return f"spec.checkpoint.path: {_short(path)}lies in no volume of rank 0's pod: {advice}"


def _mounts(template: dict[str, Any]) -> list[dict[str, Any]]:
    return _trainer(template).get("volumeMounts") or []


def _trainer(template: dict[str, Any]) -> dict[str, Any]:
    return next((c for c in _at(template, "spec.containers") or [] if c.get("name") == CONTAINER), {})


def _lies_in(path: str, directory: str) -> bool:
    return bool(directory) and (path.rstrip("/") + "/").startswith(directory.rstrip("/") + "/")


def _short(value: Any) -> str:
    return "" if value is None else f"{str(value)[:80]!r} "


def _at(template: Any, path: str) -> Any:
    for part in path.split("."):
        template = template.get(part) if isinstance(template, dict) else None
    return template


def _errors(template: dict[str, Any], own_command: bool) -> Iterator[Complaint]:
    yield from _shape_errors(template)
    yield from _limit_errors(template)
    for field in CONTAINERS:
        for number, container in enumerate(_at(template, f"spec.{field}") or []):
            yield from _container_errors(f"spec.{field}[{number}]", container)
    yield from _name_errors(template)
    yield from _command_errors(template, own_command)


def _shape_errors(template: dict[str, Any]) -> Iterator[Complaint]:
    for path in MAPS:
        if not isinstance(value := _at(template, path), dict | None):
            yield path, value, "must be a map"
    for path in STRING_MAPS:
        value = _at(template, path)
        if not (value is None or (isinstance(value, dict) and all(isinstance(v, str | None) for v in value.values()))):
            yield path, value, "must be a map of strings"
    for path in LISTS:
        if not _is_list_of(value := _at(template, path), dict):
            yield path, value, "must be a list of maps"


def _command_errors(template: dict[str, Any], own_command: bool) -> Iterator[Complaint]:
    mine = _trainer(template)
    for field in ("command", "args"):
        if not own_command and mine.get(field):
            yield f"spec.containers: {CONTAINER}: {field}", mine[field], "must be absent where training is given"
    if own_command and not (mine.get("command") or mine.get("args")):
        yield "spec.containers", None, f"without training the container {CONTAINER} must have the command to run"


def _limit_errors(template: dict[str, Any]) -> Iterator[Complaint]:
    """Yield what the API server refuses, or never ends."""
    annotations = {key: value or "" for key, value in (_at(template, "metadata.annotations") or {}).items()}
    if annotations_bytes(annotations) > MOST_ANNOTATIONS_BYTES:
        yield "metadata.annotations", None, f"must hold at most {MOST_ANNOTATIONS_BYTES} bytes together"
    path = "spec.terminationGracePeriodSeconds"
    grace = _at(template, path)
    if grace is not None and (type(grace) is not int or not 0 <= grace <= MOST_SECONDS):
        yield path, grace, f"must be a whole number of 0 .. {MOST_SECONDS} seconds"
    if (excess := excess_of(template, MOST_OF_TEMPLATE)) is not None:
        yield "", None, excess


def _name_errors(template: dict[str, Any]) -> Iterator[Complaint]:
    """Yield names of containers that are no DNS labels or that are there twice."""
    seen: set[str] = set()
    for field in CONTAINERS:
        for number, container in enumerate(_at(template, f"spec.{field}") or []):
            path, name = f"spec.{field}[{number}].name", container.get("name")
            if not isinstance(name, str) or len(name) > MOST_NAME or re.fullmatch(DNS_LABEL, name) is None:
                yield path, name, f"must be a DNS label: at most {MOST_NAME} lower-case letters, digits and '-'"
            elif name in seen:
                yield path, name, "must be there once"
            elif name == CONTAINER and field == "initContainers":
                yield path, name, "must not be an init container: it is the container that runs the ranks"
            else:
                seen.add(name)


def _container_errors(where: str, container: dict[str, Any]) -> Iterator[Complaint]:
    for field in CONTAINER_LISTS:
        item = str if field in STRINGS else dict
        if not _is_list_of(value := container.get(field), item):
            yield f"{where}.{field}", value, f"must be a list of {'strings' if item is str else 'maps'}"
        elif field in STRINGS and not all(map(_reaches_a_process, value or ())):
            yield f"{where}.{field}", None, UNFIT
    yield from _variable_errors(where, container)
    if not isinstance(value := container.get("securityContext"), dict | None):
        yield f"{where}.securityContext", value, "must be a map"


def _variable_errors(where: str, container: dict[str, Any]) -> Iterator[Complaint]:
    listed = container.get("env")
    for number, variable in enumerate(listed if _is_list_of(listed, dict) and listed else ()):
        path, name, value = f"{where}.env[{number}]", variable.get("name"), variable.get("value")
        if not isinstance(name, str) or re.fullmatch(VARIABLE, name) is None:
            yield f"{path}.name", name, "must be a string of printable ASCII characters without '='"
        if not isinstance(value, str | None):
            yield f"{path}.value", value, "must be a string"
        elif not _reaches_a_process(value or ""):
            yield f"{path}.value", None, UNFIT


def _reaches_a_process(text: str) -> bool:
    """Return whether a process can be started with a text as argument or variable."""
    return "\0" not in text and len(text.encode()) <= MOST_TEXT


def _is_list_of(value: Any, item: type) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(each, item) for each in value))
