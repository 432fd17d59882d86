"""Which part of a parameter belongs to a unit, and how a shard is cut from the whole parameter.

Along `dim` a shard is the concatenation of the owned units in ascending global id, each `rows_per_unit` wide. The unit
of a QKV weight is one head: its Q, K and V rows are adjacent.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from heterotp_trainer.plans.unit_plan import FAMILIES, USUAL_WEIGHTS, Family, Weights


@dataclass(frozen=True)
class ShardSpec:
    """A parameter cut by units along `dim`; a parameter without one is replicated."""

    family: Family
    dim: int
    rows_per_unit: int
    total_units: int

    @property
    def rows_in_all(self) -> int:
        """Size of the whole parameter along `dim`."""
        return self.total_units * self.rows_per_unit

    def rows(self, units: Sequence[int]) -> Tensor:
        """Return the canonical row numbers of these units, in order: [len(units) * rows_per_unit]."""
        first = torch.as_tensor(units, dtype=torch.long)[:, None] * self.rows_per_unit
        return (first + torch.arange(self.rows_per_unit)[None, :]).reshape(-1)

    def shape(self, full: Sequence[int], units: int) -> tuple[int, ...]:
        """Return the shape of a shard of `units` units; full: shape of the whole parameter, or of any shard."""
        return tuple(units * self.rows_per_unit if d == self.dim else size for d, size in enumerate(full))

    def full_shape(self, shard: Sequence[int]) -> tuple[int, ...]:
        """Return the canonical shape of the whole parameter."""
        return self.shape(shard, self.total_units)

    def cut(self, full: Tensor, units: Sequence[int]) -> Tensor:
        """Return the shard of these units of a whole parameter, as a copy."""
        return full.index_select(self.dim, self.rows(units).to(full.device)).contiguous()


def ffn(units: int) -> dict[str, ShardSpec]:
    """Return the parts `fc1` and `fc2` of a feed-forward network: a unit is one hidden unit."""
    return {"fc1": ShardSpec("ffn", 0, 1, units), "fc2": ShardSpec("ffn", 1, 1, units)}


def gated_ffn(units: int) -> dict[str, ShardSpec]:
    """Return the parts `gate`, `up` and `down` of a gated feed-forward network, down(act(gate x) * up x).

    A unit is one hidden unit: a row of gate and of up, a column of down.
    """
    return {
        "gate": ShardSpec("ffn", 0, 1, units),
        "up": ShardSpec("ffn", 0, 1, units),
        "down": ShardSpec("ffn", 1, 1, units),
    }


def heads(count: int, size: int) -> dict[str, ShardSpec]:
    """Return the parts `qkv` and `proj` of attention: a unit is one head, its Q, K and V rows side by side."""
    return {"qkv": ShardSpec("heads", 0, 3 * size, count), "proj": ShardSpec("heads", 1, size, count)}


def grouped_heads(groups: int, queries: int, size: int) -> dict[str, ShardSpec]:
    """Return the parts `query`, `key`, `value` and `proj` of grouped-query attention.

    A unit is one K/V head with its `queries` query heads; queries=1: ordinary attention with linears of its own for
    each part. size: width of a head.
    """
    rows = {"query": queries * size, "key": size, "value": size}
    parts = {name: ShardSpec("heads", 0, count, groups) for name, count in rows.items()}
    return {**parts, "proj": ShardSpec("heads", 1, queries * size, groups)}


def vocabulary(rows: int) -> ShardSpec:
    """Return the part of embedding and logits: a unit is one row of the vocabulary."""
    return ShardSpec("vocab", 0, 1, rows)


def shard_spec(parameter: Tensor) -> ShardSpec | None:
    """Return how a parameter is sharded; None: it is replicated."""
    return getattr(parameter, "heterotp", None)


def work_weights(parameters: Iterable[Tensor]) -> Weights:
    """Return each family's part of a model's matmul work, 0..1: its part of the elements of all sharded matrices.

    A product's operations are those of one row times the elements of its matrix, and all have the same rows. An
    embedding makes no product, so that of a vocabulary only the matrix of the logits counts (`makes_no_product`).
    """
    elements = dict.fromkeys(FAMILIES, 0)
    for parameter in parameters:
        spec = shard_spec(parameter)
        if spec is not None and parameter.dim() > 1 and not getattr(parameter, "makes_no_product", False):
            elements[spec.family] += math.prod(spec.full_shape(parameter.shape))
    whole = sum(elements.values())
    return tuple(elements[family] / whole for family in FAMILIES) if whole else USUAL_WEIGHTS


def owned_parts(parameters: Iterable[Tensor]) -> dict[Family, float]:
    """Return each family's part of the elements of these shards, 0..1; 0 for all where a rank owns no units."""
    elements = dict.fromkeys(FAMILIES, 0)
    for parameter in parameters:
        spec = shard_spec(parameter)
        if spec is not None:
            elements[spec.family] += parameter.numel()
    whole = max(1, sum(elements.values()))
    return {family: count / whole for family, count in elements.items()}


def mark_sharded(parameter: nn.Parameter, spec: ShardSpec) -> nn.Parameter:
    """Attach the spec to a parameter, and return the parameter."""
    parameter.heterotp = spec  # type: ignore[attr-defined]
    return parameter


def draw(name: str, shape: Sequence[int], std: float, seed: int) -> Tensor:
    """Return the whole parameter `name` as drawn for `seed`; it does not depend on the unit plan."""
    if std == 0:
        return torch.zeros(*shape)
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
    return torch.empty(*shape).normal_(0.0, std, generator=generator)


def sharded_parameter(
    name: str, full_shape: Sequence[int], spec: ShardSpec, units: Sequence[int], std: float, seed: int | None
) -> nn.Parameter:
    """Return this rank's shard of a freshly drawn parameter; seed None: without values, on the meta device."""
    if seed is None:
        return mark_sharded(nn.Parameter(torch.empty(spec.shape(full_shape, len(units)), device="meta")), spec)
    return mark_sharded(nn.Parameter(spec.cut(draw(name, full_shape, std, seed), units)), spec)
