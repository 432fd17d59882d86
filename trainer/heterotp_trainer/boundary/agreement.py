"""What must be equal on all ranks: replicated parameters and buffers, and the batches that enter the model.

| call                 | a rank holds            | afterwards                                     |
|----------------------|-------------------------|------------------------------------------------|
| differing_replicas   | all replicated tensors  | every rank: which of them differ on which rank |
| BatchHash.take       | what entered its model  | its own hash, which the boundary's report carries |
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from heterotp_trainer.tensor_parallel.unit_spec import shard_spec

CHUNK_WORDS = 1 << 20  # bounds the temporaries of a checksum to some 24 MB
SAMPLED_WORDS = 1024  # of each tensor that enters the model
SPREAD = 0x9E3779B97F4A7C15 - (1 << 64)  # an odd number without pattern in its bits, as int64
SAME_WITHIN = 0.01  # of the norm: replicas on devices that round differently (docs/convert-your-model.md)


def replicated(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers that every rank holds whole, by name."""
    parameters = {name: p.data for name, p in model.named_parameters() if shard_spec(p) is None}
    return {**parameters, **{name: buffer for name, buffer in model.named_buffers() if buffer is not None}}


def shape_of(model: nn.Module) -> str:
    """Return a text that is equal where models are: names, types and whole shapes of all parameters and buffers."""
    parts = []
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        spec = shard_spec(tensor)
        shape = tuple(tensor.shape) if spec is None else spec.full_shape(tensor.shape)
        parts.append(f"{name} {tensor.dtype} {shape}")
    return "; ".join(parts)


def differing_replicas(
    tensors: Mapping[str, Tensor], group: dist.ProcessGroup | None, ranks: int, *, unlike: bool
) -> dict[str, list[int]]:
    """Return the ranks whose tensor differs from rank 0's, by its name (all ranks).

    unlike: ranks round differently: then tensors are equal within SAME_WITHIN of their norm, else bit by bit.
    """
    if not tensors or ranks == 1:
        return {}
    summarize = outline if unlike else checksum
    own = torch.stack([_as_pair(summarize(tensor)) for tensor in tensors.values()]).cpu()
    gathered = [torch.empty_like(own) for _ in range(ranks)]
    dist.all_gather(gathered, own, group=group)
    same = _alike if unlike else torch.eq
    differs = torch.stack([~same(each, gathered[0]).all(dim=1) for each in gathered])  # [ranks, tensors]
    return {
        name: torch.nonzero(differs[:, place]).flatten().tolist()
        for place, name in enumerate(tensors)
        if bool(differs[:, place].any())
    }


def _as_pair(summary: Tensor) -> Tensor:
    """Return a summary as two float64, which hold every bit of an int64."""
    if summary.dtype != torch.int64:
        return summary
    return torch.stack([summary >> 32, summary & 0xFFFFFFFF]).double()


def _alike(one: Tensor, other: Tensor) -> Tensor:
    """Return whether outlines [n, 2] are those of nearly equal tensors; two that are both not finite are alike."""
    bound = SAME_WITHIN * other[:, :1].abs() + 1e-12
    return ((one - other).abs() <= bound) | (~one.isfinite() & ~other.isfinite())


# -- summaries of one tensor ----------------------------------------------------------------------------------


def checksum(tensor: Tensor) -> Tensor:
    """Return a 64-bit checksum of every byte of a tensor, as a scalar on its device."""
    words = _words(tensor)
    total = torch.zeros((), dtype=torch.int64, device=words.device)
    for start in range(0, len(words), CHUNK_WORDS):
        part = words[start : start + CHUNK_WORDS]
        places = torch.arange(start + 1, start + 1 + len(part), device=words.device)
        total += (part.to(torch.int64) * (places * SPREAD)).sum()  # both wrap at 64 bits
    return total


def _checksum_of_sample(words: Tensor) -> Tensor:
    """Return the checksum of a few words, in one operation: it is made in every iteration."""
    return (words.to(torch.int64) * _factors(words.device)[: len(words)]).sum()


@lru_cache
def _factors(device: torch.device) -> Tensor:
    """Return the factors of the words of a sample, which make their order count."""
    return torch.arange(1, 8 * SAMPLED_WORDS + 1, device=device) * SPREAD


def _words(tensor: Tensor) -> Tensor:
    """Return the bytes of a tensor as whole numbers: of 32 bits where they divide it."""
    flat = tensor.detach().reshape(-1).resolve_conj().resolve_neg().contiguous()
    if flat.dtype == torch.bool:
        return flat.to(torch.uint8)
    return flat.view(torch.int32 if flat.element_size() % 4 == 0 else torch.uint8)


def outline(tensor: Tensor) -> Tensor:
    """Return the norm of a tensor and its sum with signs that alternate without a pattern: [2] float64."""
    flat = tensor.detach().reshape(-1)
    norm = torch.zeros((), dtype=torch.float64, device=flat.device)
    signed = torch.zeros_like(norm)
    for start in range(0, len(flat), CHUNK_WORDS):
        part = flat[start : start + CHUNK_WORDS].double()
        places = torch.arange(start + 1, start + 1 + len(part), device=flat.device)
        norm += part.square().sum()
        signed += torch.where(places * SPREAD < 0, -part, part).sum()
    return torch.stack([norm.sqrt(), signed])


class BatchHash:
    """The hash of the tensors that enter a model in training, of which some thousand words each are sampled.

    Where a loop calls parts of the model (model.encoder(x)) and not the model, they are what enters the first part in
    an iteration that receives any, without tensors of the graph: those differ by rounding on unlike devices.
    """

    def __init__(self, model: nn.Module) -> None:
        self._total: Tensor | int = 0
        self._before: Tensor | int = 0
        self._entered = False  # whether a tensor entered the model or a part in this iteration
        model.register_forward_pre_hook(self._enter, with_kwargs=True)
        self._parts: dict[nn.Module, RemovableHandle] = {
            part: part.register_forward_pre_hook(self._enter_part, with_kwargs=True)
            for part in model.modules()
            if part is not model
        }

    def _enter(self, module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if module.training and (batch := list(_tensors((arguments, named)))):
            self._watch_only(module)
            self.add(batch)

    def _enter_part(self, part: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if self._entered or not part.training:
            return
        if batch := [tensor for tensor in _tensors((arguments, named)) if not tensor.requires_grad]:
            self._watch_only(part)
            self.add(batch)

    def _watch_only(self, module: nn.Module) -> None:
        """Note that a batch entered here, and look at no other part from now on: each hook costs time."""
        self._entered = True
        for part in [part for part in self._parts if part is not module]:
            self._parts.pop(part).remove()

    def add(self, *batch: Any) -> None:
        """Add all tensors of a batch, in its order; sparse, nested and quantized ones are left out."""
        for tensor in filter(_has_words, _tensors(batch)):
            flat = tensor.detach().reshape(-1)
            sample = flat[:: max(1, len(flat) // SAMPLED_WORDS)]
            self._total = self._total * 31 + _checksum_of_sample(_words(sample)) + tensor.numel()

    def take(self) -> int:
        """Return the hash of an iteration's batches and begin the next; the same iteration's on all ranks.

        On a device that runs behind the host it is the iteration before, so that the host does not wait for it: the
        update between two calls waits for the norm of the gradients.
        """
        newest, self._total, self._entered = self._total, 0, False
        if isinstance(newest, Tensor) and newest.device.type != "cpu":
            arriving = _to_host(newest)  # read one iteration later
            newest, self._before = self._before, arriving
        return int(newest) & 0xFFFFFFFFFFFFFFFF


def _has_words(tensor: Tensor) -> bool:
    """Return whether the values of a tensor are plain memory."""
    return not (tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized or tensor.is_meta)


def _to_host(tensor: Tensor) -> Tensor:
    """Return a copy in the host's memory, which is there once the device has done all work before it."""
    copied = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return copied.copy_(tensor, non_blocking=True)


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested tuples, lists and dictionaries, in their order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from _tensors(list(value.values()))
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for each in value:
            yield from _tensors(each)
