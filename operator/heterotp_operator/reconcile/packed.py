"""What the stores keep as text: a JSON value takes up to twenty times the memory of its text."""

import json
from typing import Any

Body = dict[str, Any]


class Packed(str):
    """A JSON value as compact text; a type of its own, because a user may write a text where a map belongs."""

    __slots__ = ()


def packed(value: Any) -> Packed:
    """Return a JSON value as text."""
    return Packed(json.dumps(value, sort_keys=True, separators=(",", ":")))


def unpacked(value: Any) -> Any:
    """Return the value that a text stands for; any other value as it is."""
    return json.loads(value) if isinstance(value, Packed) else value


def with_packed_templates(spec: Any) -> Any:
    """Return a job's spec whose templates are packed; what is no list of groups is left alone."""
    return _each_template(spec, lambda template: packed(template) if isinstance(template, dict) else template)


def with_templates(spec: Any) -> Any:
    """Return a job's spec as it was before its templates were packed."""
    return _each_template(spec, unpacked)


def _each_template(spec: Any, change: Any) -> Any:
    groups = spec.get("workerGroups") if isinstance(spec, dict) else None
    if not isinstance(groups, list):
        return spec
    return {**spec, "workerGroups": [_changed(group, change) for group in groups]}


def _changed(group: Any, change: Any) -> Any:
    return (
        {**group, "template": change(group["template"])} if isinstance(group, dict) and "template" in group else group
    )
