"""What all ranks hold alike, sent from one rank to one that comes back: everything but the units and their state.

| call    | rank i holds                   | afterwards                                                         |
|---------|--------------------------------|--------------------------------------------------------------------|
| send    | all of it                      | the same                                                           |
| receive | a fresh model and optimizer    | the same values, and no units: its sharded tensors have room for 0 |
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from heterotp_trainer.checkpoint.contents import Contents
from heterotp_trainer.checkpoint.generators import generator_states, resume_generators
from heterotp_trainer.checkpoint.optimizer_settings import resume_settings, settings_of
from heterotp_trainer.checkpoint.plain import decode
from heterotp_trainer.checkpoint.rank_states import RankState
from heterotp_trainer.checkpoint.storage import DTYPES
from heterotp_trainer.launch.json_messages import MOST_BYTES, MalformedMessageError
from heterotp_trainer.resharding.sharded_state import states_of
from heterotp_trainer.tensor_parallel.unit_spec import shard_spec

MOST_DIMENSIONS = 16
PACK_BYTES = 32 << 20  # of a message, or one tensor


def send(contents: Contents, facts: Mapping[str, Any], device: torch.device, to: int, group: dist.ProcessGroup) -> None:
    """Send what a rank lacks that comes back; facts: further values, as RankState takes them."""
    state = RankState.of({"facts": dict(facts), **_held(contents, device)}, "the state for a rank that comes back")
    kinds = [(str(tensor.dtype), list(tensor.shape)) for tensor in state.tensors]
    text = json.dumps([state.body, kinds]).encode()
    _send(torch.tensor([len(text)]), to, group)
    _send(torch.frombuffer(bytearray(text), dtype=torch.uint8), to, group)
    for pack in _packs(state.tensors):
        _send(torch.cat([each.detach().cpu().contiguous().view(-1).view(torch.uint8) for each in pack]), to, group)


def receive(contents: Contents, device: torch.device, source: int, group: dist.ProcessGroup) -> dict[str, Any]:
    """Take what `send` sent; return its facts.

    Raises MalformedMessageError where it is not of this kind, ValueError where it is of another model.
    """
    length = torch.zeros(1, dtype=torch.int64)
    _receive(length, source, group)
    if not 0 < int(length) <= MOST_BYTES:
        raise MalformedMessageError(f"rank {source} announces a state of {int(length)} bytes")
    text = torch.empty(int(length), dtype=torch.uint8)
    _receive(text, source, group)
    try:
        body, kinds = json.loads(text.numpy().tobytes())
        tensors = [torch.empty(_shape(shape), dtype=DTYPES[dtype]) for dtype, shape in kinds]
    except (KeyError, TypeError, ValueError):
        raise MalformedMessageError(f"rank {source} sent what is no state") from None
    for pack in _packs(tensors):
        arriving = torch.empty(sum(each.nbytes for each in pack), dtype=torch.uint8)
        _receive(arriving, source, group)
        for each, part in zip(pack, arriving.split([each.nbytes for each in pack]), strict=True):
            each.copy_(part.clone().view(each.dtype).view(each.shape))  # clone: a view needs the type's alignment
    held = decode(body, lambda number: tensors[number])
    _take(contents, held, device)
    facts: dict[str, Any] = held["facts"]
    return facts


def _packs(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Yield the tensors in messages: each message costs time, and a large one memory."""
    pack: list[Tensor] = []
    for tensor in tensors:
        if pack and sum(each.nbytes for each in pack) + tensor.nbytes > PACK_BYTES:
            yield pack
            pack = []
        if tensor.numel():
            pack.append(tensor)
    if pack:
        yield pack


def _shape(shape: list[int]) -> tuple[int, ...]:
    if len(shape) > MOST_DIMENSIONS or any(not isinstance(size, int) or size < 0 for size in shape):
        raise ValueError("no shape")
    return tuple(shape)


def _send(tensor: Tensor, to: int, group: dist.ProcessGroup) -> None:
    if tensor.numel():
        dist.send(tensor, dst=to, group=group)


def _receive(tensor: Tensor, source: int, group: dist.ProcessGroup) -> None:
    if tensor.numel():
        dist.recv(tensor, src=source, group=group)


def _held(contents: Contents, device: torch.device) -> dict[str, Any]:
    """Return all values; of an optimizer state that is cut as its parameter, only its kind."""
    parameters, optimizer = contents.parameters, contents.optimizer
    cut: dict[str, dict[str, str]] = {}
    whole: dict[str, dict[str, Tensor]] = {}
    for name, parameter in parameters.items():
        for key, value in optimizer.state.get(parameter, {}).items():
            if not isinstance(value, Tensor):
                continue
            if shard_spec(parameter) is not None and value.dim() and value.shape == parameter.shape:
                cut.setdefault(name, {})[key] = str(value.dtype)
            else:
                whole.setdefault(name, {})[key] = value
    return {
        "replicated": {name: p.detach() for name, p in parameters.items() if shard_spec(p) is None},
        "buffers": contents.buffers,
        "settings": settings_of(optimizer, parameters),
        "cut": cut,
        "whole": whole,
        "kept": contents.kept.states(),
        "generators": generator_states(device),
    }


@torch.no_grad()
def _take(contents: Contents, held: dict[str, Any], device: torch.device) -> None:
    parameters, optimizer = contents.parameters, contents.optimizer
    names = {name for name, p in parameters.items() if shard_spec(p) is None}
    if held["replicated"].keys() != names or held["buffers"].keys() != contents.buffers.keys():
        raise ValueError("the others train another model")
    for name, value in held["replicated"].items():
        parameters[name].copy_(value)
    for name, value in held["buffers"].items():
        contents.buffers[name].copy_(value)
    optimizer.state.clear()
    for state in states_of([p for p in parameters.values() if shard_spec(p) is not None], None, lambda parameter: ()):
        state.put(state.empty(0).tensor)
    for name, kinds in held["cut"].items():
        for key, dtype in kinds.items():
            optimizer.state[parameters[name]][key] = torch.empty_like(parameters[name], dtype=DTYPES[dtype])
    for name, values in held["whole"].items():
        for key, value in values.items():
            like = parameters[name] if value.dim() else value
            optimizer.state[parameters[name]][key] = value.to(like.device)
    resume_settings(optimizer, parameters, held["settings"])
    contents.kept.resume(held["kept"])
    resume_generators(held["generators"], device)  # last: a user's load_state_dict may draw
