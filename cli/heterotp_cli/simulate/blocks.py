"""Costs of transformer blocks whose products take time in proportion to operations, as cost calibration writes them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.linears import Curve, Line, LinearClass, Link, Parallel, UnitMoveCost
from heterotp_trainer.plans.unit_plan import FAMILIES, Family, UnitPlan


@dataclass(frozen=True)
class Linear:
    """One linear of every block; its other side is as wide as the model. per_unit: rows or columns of one unit."""

    name: str
    parallel: Parallel
    family: Family
    per_unit: int


@dataclass(frozen=True)
class Vocabulary:
    """Embedding and logits: rows V, calls of the logits in an iteration, bytes of a row with its optimizer state."""

    rows: int
    calls: int
    row_bytes: float


def attention(size: int) -> tuple[Linear, ...]:
    """Return the linears of attention whose query, key and value are one; size: width of a head."""
    return Linear("qkv", "column", "heads", 3 * size), Linear("proj", "row", "heads", size)


def grouped_attention(queries: int, size: int) -> tuple[Linear, ...]:
    """Return the linears of attention whose unit is a K/V head with its query heads."""
    widths = {"query": queries * size, "key": size, "value": size}
    columns = (Linear(name, "column", "heads", width) for name, width in widths.items())
    return *columns, Linear("proj", "row", "heads", queries * size)


FFN = (Linear("fc1", "column", "ffn", 1), Linear("fc2", "row", "ffn", 1))
GATED_FFN = (Linear("gate", "column", "ffn", 1), Linear("up", "column", "ffn", 1), Linear("down", "row", "ffn", 1))
LOGITS = Linear("lm_head", "column", "vocab", 1)


@dataclass(frozen=True)
class Blocks:
    """Blocks of attention and a feed-forward network; rows: tokens of a batch, calls: blocks passed in an iteration.

    parameter_bytes: of one parameter of all blocks with its optimizer state. vocabulary: of a language model; its
    logits are computed for all tokens. recompute: the backward pass computes blocks, but not logits, again.
    """

    width: int
    linears: tuple[Linear, ...]
    rows: int
    calls: int
    parameter_bytes: float
    vocabulary: Vocabulary | None = None
    recompute: bool = False

    @classmethod
    def plain(cls, width: int, heads: int, rows: int, calls: int, parameter_bytes: float) -> "Blocks":
        """Return blocks of the vision transformer: heads that divide the width, and plain feed-forward networks."""
        return cls(width, (*attention(width // heads), *FFN), rows, calls, parameter_bytes)

    def operations(self, plan: UnitPlan) -> float:
        """Return the operations of all products of one iteration, forward and backward, each counted once."""
        each = sum(linear.per_unit * plan.total(linear.family) for linear in self.linears)
        logits = self.vocabulary.rows * self.vocabulary.calls if self.vocabulary is not None else 0
        return 6.0 * self.rows * (each * self.calls + logits) * self.width

    def unit_bytes(self, family: Family) -> float:
        """Return the bytes of one unit with its optimizer state."""
        if family == "vocab":
            return self.vocabulary.row_bytes if self.vocabulary is not None else 0.0
        return self.width * self.parameter_bytes * sum(each.per_unit for each in self.linears if each.family == family)


def costs_of(
    blocks: Blocks, plan: UnitPlan, operation_seconds: Sequence[float], link: Link, item_bytes: int, grain: int
) -> Costs:
    """Return the costs that decisions use; operation_seconds: of one operation, by rank."""
    called = [(linear, blocks.calls) for linear in blocks.linears]
    if blocks.vocabulary is not None:
        called.append((LOGITS, blocks.vocabulary.calls))
    classes = tuple(_class(linear, blocks, calls, plan) for linear, calls in called)
    square = 6.0 * blocks.rows * blocks.width**2
    wide = float(blocks.width)
    again = (3 + int(blocks.recompute)) / 3  # a forward that is done again
    times = [1.0 if linear is LOGITS else again for linear, _ in called]
    curves = tuple(
        tuple(Curve((0.0, wide), (0.0, square * each * t), blocks.width) for t in times) for each in operation_seconds
    )
    unit_move = UnitMoveCost(*map(blocks.unit_bytes, FAMILIES))
    return Costs(classes, curves, (grain,) * plan.ranks, link, item_bytes, unit_move=unit_move)


def _class(linear: Linear, blocks: Blocks, calls: int, plan: UnitPlan) -> LinearClass:
    wide = (blocks.width,) * plan.ranks
    sizes = linear.family, linear.per_unit
    return LinearClass(linear.name, linear.parallel, wide, wide, blocks.rows, calls, *sizes).owned_by(plan)


def link_of(ranks: int, latency_seconds: float, byte_seconds: float) -> Link:
    """Return the times of transfers: broadcasts and reductions along a tree, pieces directly to one rank."""
    tree = Line(math.ceil(math.log2(ranks)) * latency_seconds, byte_seconds) if ranks > 1 else Line()
    return Link(tree, tree, Line(latency_seconds, byte_seconds))
