"""Models to structural schemas (apiextensions.k8s.io/v1), with their CEL rules.

What differs from pydantic's JSON schema: references are written out, null is not a type (an absent
field is absent), exclusive bounds are booleans beside the bound (OpenAPI 3.0), tuples are arrays of one
item type, constants are enums, and titles and `additionalProperties: false` have no place.
"""

import math
from typing import Any

from pydantic import BaseModel

from heterotp_api.base import Model

Json = dict[str, Any]
_DROPPED = ("title", "$defs", "additionalProperties", "discriminator", "const", "prefixItems")
# on a field whose default the API server must not write down, because what is absent has a meaning of its own
UNDECLARED_DEFAULT = "undeclaredDefault"
_PRESERVE = "x-kubernetes-preserve-unknown-fields"


def structural(model: type[Model]) -> Json:
    """Return the structural schema of a model; raise ValueError naming what cannot be expressed."""
    raw = model.model_json_schema(by_alias=True, mode="validation")
    rules = {cls.__name__: cls for cls in _models(model)}
    return _convert(raw, raw.get("$defs", {}), rules, model.__name__)


def _models(model: type[Model]) -> list[type[Model]]:
    """Return every subclass of Model (names are unique across the api package)."""
    found: list[type[Model]] = [model]
    stack: list[type[Model]] = [Model]
    while stack:
        for cls in stack.pop().__subclasses__():
            found.append(cls)
            stack.append(cls)
    return found


def _convert(node: Json, defs: Json, models: dict[str, type[Model]], name: str = "") -> Json:
    """Return one node of the schema, converted with all that lies below."""
    if "$ref" in node:
        target = node["$ref"].rsplit("/", 1)[-1]
        rest = {key: value for key, value in node.items() if key != "$ref"}
        if isinstance(rest.get("default"), dict):
            rest["default"] = _without_undeclared(rest["default"], defs[target], defs)
        return {**_convert(defs[target], defs, models, target), **_scalars(rest)}
    if "anyOf" in node:
        return {**_convert(_only_variant(node["anyOf"], name), defs, models, name), **_scalars(node)}
    out = _scalars(node)
    if "items" in node:
        out["items"] = _convert(node["items"], defs, models, name)
    elif "prefixItems" in node:
        out["items"] = _convert(_only_variant(node["prefixItems"], name), defs, models, name)
    if isinstance(node.get("additionalProperties"), dict):
        out["additionalProperties"] = _convert(node["additionalProperties"], defs, models, name)
    if "properties" in node:
        out["properties"] = {k: _convert(v, defs, models, k) for k, v in node["properties"].items()}
        if name in models and (rules := [r.as_validation() for r in models[name].rules if r.cel]):
            out["x-kubernetes-validations"] = rules
    elif node.get("type") == "object" and "additionalProperties" not in out:
        out[_PRESERVE] = True
    return out


def _only_variant(variants: list[Json], name: str) -> Json:
    """Return the one type of a union that is not null; a structural schema has no other unions."""
    kept: list[Json] = []
    for variant in variants:
        if variant.get("type") != "null" and variant not in kept:
            kept.append(variant)
    if len(kept) != 1:
        raise ValueError(f"{name}: a union of {len(kept)} types has no structural schema: {kept}")
    return kept[0]


def _scalars(node: Json) -> Json:
    """Return the keywords of one node that are no sub-schemas."""
    nested = ("items", "properties", "anyOf", "$ref", *_DROPPED)
    out = {key: value for key, value in node.items() if key not in nested}
    if "const" in node:
        out["enum"] = [node["const"]]
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if exclusive in out:
            out[bound] = out.pop(exclusive)
            out[exclusive] = True
    if out.get("minimum", 0) % 1:  # the API server compares whole numbers with the whole part of a bound
        out["allOf"] = [{"minimum": math.floor(out["minimum"]), "exclusiveMinimum": True}]
    if out.pop(UNDECLARED_DEFAULT, False):
        out.pop("default", None)
    if "default" in out:
        out["default"] = _without_none(out["default"])
        if out["default"] is None:
            del out["default"]
    if out.get("type") == "integer":
        out.setdefault("format", "int64")
    if "description" in out:
        out["description"] = " ".join(out["description"].split())
    return out


def _without_undeclared(default: Json, node: Json, defs: Json) -> Json:
    """Return an object's default without the fields, also of inner objects, whose own default is not declared."""
    fields = {key: node.get("properties", {}).get(key, {}) for key in default}
    inner = {key: defs[each["$ref"].rsplit("/", 1)[-1]] for key, each in fields.items() if "$ref" in each}
    return {
        key: _without_undeclared(value, inner[key], defs) if key in inner and isinstance(value, dict) else value
        for key, value in default.items()
        if not fields[key].get(UNDECLARED_DEFAULT)
    }


def unset_undeclared(model: BaseModel) -> dict[str, Any]:
    """Return, as pydantic's `exclude`, fields of a model that nobody gave and the API server does not write down.

    A program that is older than such a field would refuse it.
    """
    out: dict[str, Any] = {}
    for name, field in type(model).model_fields.items():
        value, extra = getattr(model, name), field.json_schema_extra
        if isinstance(extra, dict) and extra.get(UNDECLARED_DEFAULT) and name not in model.model_fields_set:
            out[name] = True
        elif isinstance(value, BaseModel) and (inner := unset_undeclared(value)):
            out[name] = inner
    return out


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_none(item) for item in value]
    return value
