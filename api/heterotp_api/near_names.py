"""Which field a misspelt one may stand for, by the models themselves."""

import difflib
from collections.abc import Iterator, Sequence

from pydantic import BaseModel

from heterotp_api.fields import alias, below, model_in

LEAST_SIMILARITY = 0.7  # difflib's ratio, 0..1


def near_field(model: type[BaseModel], location: Sequence[int | str]) -> str | None:
    """Return the dotted path of the field that an unknown one most likely stands for; None without one.

    location: path of the unknown field below the model. The nearest name beside it is taken, else the field of the same
    name on the highest other level, where there is only one.
    """
    *above, name = (str(part) for part in location if not isinstance(part, int))
    beside: type[BaseModel] | None = model
    for part in above:
        beside = None if beside is None else below(beside, part)
    names = [] if beside is None else [alias(beside, field) for field in beside.model_fields]
    if near := difflib.get_close_matches(name, names, 1, LEAST_SIMILARITY):
        return ".".join([*above, *near])
    same = [path for path in _paths(model) if path.rpartition(".")[2] == name]
    highest = [path for path in same if path.count(".") == min(each.count(".") for each in same)]
    return highest[0] if len(highest) == 1 else None


def _paths(model: type[BaseModel], above: str = "") -> Iterator[str]:
    for field in model.model_fields:
        path = f"{above}{alias(model, field)}"
        yield path
        inner = model_in(model.model_fields[field].annotation)
        if inner is not None:
            yield from _paths(inner, f"{path}.")
