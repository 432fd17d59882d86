"""States that may differ from rank to rank: generators, schedulers, samplers, the settings of the optimizer.

A checkpoint holds rank 0's state, and beside it those of ranks where it differs. On another number of ranks every rank
continues with rank 0's.

| call    | rank i holds   | rank 0 afterwards                                |
|---------|----------------|--------------------------------------------------|
| collect | its own states | its own, and those of ranks where they differ    |
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from heterotp_trainer.checkpoint.plain import decode, encode
from heterotp_trainer.checkpoint.storage import DTYPES
from heterotp_trainer.errors import InputError
from heterotp_trainer.launch.json_messages import MOST_BYTES, gather_json

MOST_BODY = MOST_BYTES // 16  # bytes of one state's JSON: a restart sends those of all ranks in one message


@dataclass(frozen=True)
class RankState:
    """One state of one rank: JSON, and the tensors that it refers to by number."""

    body: Any
    tensors: tuple[Tensor, ...]

    @classmethod
    def of(cls, value: object, place: str) -> "RankState":
        """Return a value as a state; place: what it is, for errors.

        Raises ValueError for what cannot be stored, and for what could be written but not read.
        """
        tensors: list[Tensor] = []
        body = encode(value, place, tensors)
        if (length := len(json.dumps(body))) > MOST_BODY:
            raise InputError(
                f"{place} has {length} bytes beside its tensors, at most {MOST_BODY} can be read again: hold long "
                "sequences as tensors"
            )
        return cls(body, tuple(tensors))

    @property
    def digest(self) -> str:
        """Equal if and only if the states are equal."""
        found = hashlib.sha256(json.dumps(self.body).encode())
        for tensor in self.tensors:
            found.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
            found.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        return found.hexdigest()


States = Mapping[str, RankState]
Bodies = dict[str, tuple[Any, list[tuple[str, tuple[int, ...]]]]]  # by name; dtype and shape of each tensor
ByRank = dict[str, dict[int, RankState]]  # by name; rank 0's, and those that differ from it


def collect(states: States, rank: int, ranks: int, group: dist.ProcessGroup | None) -> ByRank:
    """Return on rank 0 the states of all ranks, where they differ (all ranks); empty elsewhere.

    Raises ValueError where ranks have states of other names.
    """
    digests = gather_json({name: state.digest for name, state in states.items()}, dict[str, str], ranks, group)
    odd = [other for other, each in enumerate(digests) if each.keys() != digests[0].keys()]
    if odd:
        raise InputError(f"session.keep: ranks {odd} keep other names than rank 0: every rank must keep the same")
    differing = [[name for name in each if each[name] != digests[0][name]] for each in digests]
    gathered: list[States] = [states] + [{}] * (ranks - 1)
    if any(differing):
        gathered[1:] = _to_rank_0({name: states[name] for name in differing[rank]}, rank, ranks, group)[1:]
    if rank != 0:
        return {}
    return {name: {r: each[name] for r, each in enumerate(gathered) if name in each} for name in states}


def _to_rank_0(own: States, rank: int, ranks: int, group: dist.ProcessGroup | None) -> list[States]:
    """Return on rank 0 the states of all ranks; elsewhere without their tensors (all ranks)."""
    bodies = {
        name: (state.body, [(str(tensor.dtype), tuple(tensor.shape)) for tensor in state.tensors])
        for name, state in own.items()
    }
    found: list[States] = []
    for source, received in enumerate(gather_json(bodies, Bodies, ranks, group)):
        empty = {
            name: RankState(body, tuple(torch.empty(shape, dtype=DTYPES[dtype]) for dtype, shape in tensors))
            for name, (body, tensors) in received.items()
        }
        found.append(own if source == rank else empty)
        for tensor in (tensor for state in found[-1].values() for tensor in state.tensors):
            if rank == source != 0:
                dist.send(tensor.contiguous(), dst=0, group=group)
            elif rank == 0 and source != 0:
                dist.recv(tensor, src=source, group=group)
    return found


def tensors_of(states: ByRank) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of collected states with their names in a checkpoint."""
    for name, by_rank in states.items():
        for rank, state in by_rank.items():
            for number, tensor in enumerate(state.tensors):
                yield _name(name, rank, number), tensor


def facts_of(states: ByRank) -> dict[str, dict[str, Any]]:
    """Return the JSON of collected states, by name and rank."""
    return {name: {str(rank): state.body for rank, state in by_rank.items()} for name, by_rank in states.items()}


def value_of(facts: Mapping[str, Mapping[str, Any]], name: str, rank: int, tensors: Mapping[str, Tensor]) -> Any:
    """Return a rank's value of a state; facts, tensors: of the checkpoint. Raises ValueError for a malformed one."""
    by_rank = facts[name]
    holder = rank if str(rank) in by_rank else 0
    tensor: Callable[[int], Tensor] = lambda number: tensors[_name(name, holder, number)]  # noqa: E731
    try:
        return decode(by_rank[str(holder)], tensor)
    except (KeyError, TypeError, ValueError):
        raise InputError(f"the checkpoint's state of {name} is malformed: use another checkpoint") from None


def _name(name: str, rank: int, number: int) -> str:
    return f"state/{name}/{rank}/{number}"
