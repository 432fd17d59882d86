"""The fields of models by the names that they have in manifests."""

from typing import Any, get_args

from pydantic import BaseModel

from heterotp_api.base import without_nulls


def alias(model: type[BaseModel], field: str) -> str:
    """Return the name in manifests of a field."""
    return model.model_fields[field].alias or field


def below(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    """Return the model of a field, also of an optional one or of a list's items; None where it holds no model."""
    field = next((field for field in model.model_fields if alias(model, field) == name), None)
    return None if field is None else model_in(model.model_fields[field].annotation)


def model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the first model that a type names; None without one."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := model_in(part)) is not None), None)


def without_null_fields(value: Any, model: type[BaseModel] | None) -> Any:
    """Return a deep copy without known fields that are null: to the API server they are absent, unknown ones are not.

    model: of the value, or of a list's items; None: any map, of which all nulls are left out.
    """
    if model is None:
        return without_nulls(value)
    if isinstance(value, list):
        return [without_null_fields(each, model) for each in value]
    if not isinstance(value, dict):
        return value
    known = {alias(model, field) for field in model.model_fields}
    return {
        key: without_null_fields(inner, below(model, key))
        for key, inner in value.items()
        if inner is not None or key not in known
    }
