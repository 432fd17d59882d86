"""What must be equal on all ranks: replicated parameters and buffers. For what enters the model see batch_hash.py.

| call                 | a rank holds            | afterwards                                     |
|----------------------|-------------------------|------------------------------------------------|
| differing_replicas   | all replicated tensors  | every rank: which of them differ on which rank |
"""

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn

from heterotp_trainer.tensor_parallel.unit_spec import shard_spec

COMPARE_EVERY = 100  # iterations
USUAL_CAUSES = (
    "usually unlike labels (session.batch compares them at once), a parameter between a column- and a row-parallel "
    "linear, or gradients that the script clips or scales by what one rank sees"
)
CHUNK_WORDS = 1 << 20  # bounds the temporaries of a checksum to some 24 MB
SPREAD = 0x9E3779B97F4A7C15 - (1 << 64)  # an odd number without pattern in its bits, as int64
SAME_WITHIN = 0.01  # of the norm: replicas on devices that round differently (docs/convert-your-model.md)


def replicated(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers that every rank holds whole, by name."""
    parameters = {name: p.data for name, p in model.named_parameters() if shard_spec(p) is None}
    return {**parameters, **{name: buffer for name, buffer in model.named_buffers() if buffer is not None}}


def shape_of(model: nn.Module) -> list[str]:
    """Return texts that are equal where models are: name, type, whole shape of each tensor, whether it is frozen."""
    parts = []
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        spec = shard_spec(tensor)
        shape = tuple(tensor.shape) if spec is None else spec.full_shape(tensor.shape)
        frozen = " frozen" if isinstance(tensor, nn.Parameter) and not tensor.requires_grad else ""
        parts.append(f"{name} of {str(tensor.dtype).removeprefix('torch.')} {shape}{frozen}")
    return parts


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
    words = words_of(tensor)
    total = torch.zeros((), dtype=torch.int64, device=words.device)
    for start in range(0, len(words), CHUNK_WORDS):
        part = words[start : start + CHUNK_WORDS]
        places = torch.arange(start + 1, start + 1 + len(part), device=words.device)
        total += (part.to(torch.int64) * (places * SPREAD)).sum()  # both wrap at 64 bits
    return total


def words_of(tensor: Tensor) -> Tensor:
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
