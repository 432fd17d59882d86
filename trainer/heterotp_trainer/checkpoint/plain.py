"""State dicts as JSON and tensors: a checkpoint may come from anywhere, and unpickling it could run its author's code.

A scalar and a list are themselves in JSON; {"dict": pairs}, {"counter": pairs}, {"tuple": items}; {"tensor": number}. A
long list of whole numbers (a sampler's order) is {"ints": number}, a tensor, too: ranks send the JSON as one message.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from heterotp_trainer.errors import InputError

SCALARS = (bool, int, float, str, type(None))
MAPPINGS = (dict, OrderedDict)
DEEPEST = 100
LONG = 1000  # a list of more whole numbers becomes a tensor
_STORED = "a checkpoint stores numbers, strings, None, tensors, and lists, tuples and dicts of them"


def encode(value: object, place: str, tensors: list[Tensor], depth: int = 0) -> Any:
    """Return the JSON-ready form of a value; its tensors are appended to `tensors`.

    place: what the value is, for errors. Raises ValueError naming the place and type of what cannot be stored.
    """
    kind = type(value)
    if kind in SCALARS:
        return value
    if depth < DEEPEST:
        if isinstance(value, list) and kind is list and (ints := _long_ints(value)) is not None:
            tensors.append(ints)
            return {"ints": len(tensors) - 1}
        if isinstance(value, (list, tuple)) and kind in (list, tuple):
            items = [encode(each, f"{place}[{i}]", tensors, depth + 1) for i, each in enumerate(value)]
            return items if kind is list else {"tuple": items}
        if isinstance(value, Mapping) and kind in (*MAPPINGS, Counter):
            return {"counter" if kind is Counter else "dict": _pairs(value, place, tensors, depth)}
    if isinstance(value, np.generic) and type(value.item()) in SCALARS:
        return value.item()
    if isinstance(value, Tensor) and value.layout is torch.strided and not value.is_quantized:
        tensors.append(value.detach().cpu())
        return {"tensor": len(tensors) - 1}
    raise InputError(f"{place} is of type {kind.__module__}.{kind.__qualname__}: {_STORED}")


def _long_ints(values: list[Any]) -> Tensor | None:
    """Return a long list of whole numbers of 64 bits as a tensor; None for any other list."""
    if len(values) <= LONG or any(type(each) is not int for each in values):
        return None
    if min(values) < torch.iinfo(torch.int64).min or max(values) > torch.iinfo(torch.int64).max:
        return None
    return torch.tensor(values, dtype=torch.int64)


def _pairs(value: Mapping[Any, object], place: str, tensors: list[Tensor], depth: int) -> list[Any]:
    for key in value:
        if type(key) not in SCALARS:
            raise InputError(
                f"{place}: its key {key!r} is of type {type(key).__qualname__}: keys are numbers or strings"
            )
    return [[key, encode(each, f"{place}[{key!r}]", tensors, depth + 1)] for key, each in value.items()]


def decode(body: Any, tensor: Callable[[int], Tensor]) -> Any:
    """Return the value that `encode` made `body` of; tensor: returns tensor number n of the checkpoint."""
    if isinstance(body, list):
        return [decode(each, tensor) for each in body]
    if not isinstance(body, dict):
        return body
    ((kind, inner),) = body.items()
    if kind == "tensor":
        return tensor(inner)
    if kind == "ints":
        return tensor(inner).tolist()
    if kind == "tuple":
        return tuple(decode(each, tensor) for each in inner)
    if kind not in ("dict", "counter"):
        raise ValueError(kind)
    pairs = {key: decode(each, tensor) for key, each in inner}
    return Counter(pairs) if kind == "counter" else pairs
