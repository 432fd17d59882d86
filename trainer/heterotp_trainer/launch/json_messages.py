"""Values that ranks exchange as JSON of a known type: nothing that comes over the network is unpickled.

| call           | a rank holds             | afterwards                         |
|----------------|--------------------------|------------------------------------|
| gather_json    | a value                  | every rank: the values of all ranks |
| broadcast_json | rank 0: a value          | every rank: rank 0's value         |
"""

import json
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

MOST_BYTES = 64 << 20  # of one rank's value


class MalformedMessageError(RuntimeError):
    """What a peer sent is too long, or not of the type that is exchanged here."""


def gather_json(value: Any, kind: Any, ranks: int, group: dist.ProcessGroup | None) -> list[Any]:
    """Return the values of all ranks, by rank (all ranks); kind: their type, the same on all ranks.

    Raises MalformedMessageError naming the rank whose value is not of this type.
    """
    if ranks == 1:
        return [value]
    own = _bytes_of(value, kind)
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(ranks)]
    dist.all_gather(lengths, torch.tensor([len(own)]), group=group)
    counts = [int(length) for length in lengths]
    for rank, count in enumerate(counts):
        _check_length(rank, count)
    padded = torch.zeros(max(counts), dtype=torch.uint8)
    padded[: len(own)] = own
    gathered = [torch.empty_like(padded) for _ in range(ranks)]
    dist.all_gather(gathered, padded, group=group)
    return [
        _value_of(rank, each[:count], kind) for rank, (each, count) in enumerate(zip(gathered, counts, strict=True))
    ]


def broadcast_json(value: Any, kind: Any, rank: int, group: dist.ProcessGroup | None) -> Any:
    """Return rank 0's value (all ranks); value: of rank 0, ignored elsewhere; kind: its type, the same on all ranks.

    Raises MalformedMessageError where it is not of this type.
    """
    own = _bytes_of(value, kind) if rank == 0 else None
    length = torch.tensor([len(own) if own is not None else 0])
    dist.broadcast(length, src=0, group=group)
    _check_length(0, int(length))
    data = own if own is not None else torch.empty(int(length), dtype=torch.uint8)
    dist.broadcast(data, src=0, group=group)
    return value if own is not None else _value_of(0, data, kind)


@lru_cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _bytes_of(value: Any, kind: Any) -> Tensor:
    plain = _adapter(kind).dump_python(value, by_alias=True)
    return torch.frombuffer(bytearray(json.dumps(plain).encode()), dtype=torch.uint8)  # json keeps inf and nan


def _check_length(rank: int, count: int) -> None:
    if not 0 < count <= MOST_BYTES:
        raise MalformedMessageError(f"rank {rank} announces a message of {count} bytes; at most {MOST_BYTES} are taken")


def _value_of(rank: int, data: Tensor, kind: Any) -> Any:
    try:
        return _adapter(kind).validate_json(data.numpy().tobytes())
    except ValidationError as error:
        raise MalformedMessageError(
            f"rank {rank}'s message is no {getattr(kind, '__name__', kind)}: {error.error_count()} errors"
        ) from None
