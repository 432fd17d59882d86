"""Costs of transformer blocks whose products take time in proportion to operations, as cost calibration writes them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.linears import Curve, Line, LinearClass, Link, UnitMoveCost
from heterotp_trainer.plans.unit_plan import UnitPlan

PARTS = (("qkv", "column", "heads"), ("proj", "row", "heads"), ("fc1", "column", "ffn"), ("fc2", "row", "ffn"))
LOGITS = ("lm_head", "column", "vocab")


@dataclass(frozen=True)
class Vocabulary:
    """Embedding and logits: rows V, calls of the logits in an iteration, bytes of a row with its optimizer state."""

    rows: int
    calls: int
    row_bytes: float


@dataclass(frozen=True)
class Blocks:
    """Blocks of attention and a feed-forward network; rows: tokens of a batch, calls: blocks passed in an iteration.

    parameter_bytes: of one parameter of all blocks with its optimizer state. vocabulary: of a language model; its
    logits are computed for all tokens.
    """

    width: int
    heads: int
    rows: int
    calls: int
    parameter_bytes: float
    vocabulary: Vocabulary | None = None

    def operations(self, ffn_units: int) -> float:
        """Return the operations of all products of one iteration, forward and backward."""
        logits = self.vocabulary.rows * self.vocabulary.calls if self.vocabulary is not None else 0
        return 6.0 * self.rows * ((4 * self.width + 2 * ffn_units) * self.calls + logits) * self.width


def costs_of(
    blocks: Blocks, plan: UnitPlan, operation_seconds: Sequence[float], link: Link, item_bytes: int, grain: int
) -> Costs:
    """Return the costs that decisions use; operation_seconds: of one operation, by rank."""
    width, head = blocks.width, blocks.width // blocks.heads
    per_unit = {"qkv": 3 * head, "proj": head, "fc1": 1, "fc2": 1}
    wide = (width,) * plan.ranks
    classes = [_linears(name, how, wide, blocks, family, per_unit[name], plan) for name, how, family in PARTS]
    row_bytes = 0.0
    if blocks.vocabulary is not None:
        logits, row_bytes = replace(blocks, calls=blocks.vocabulary.calls), blocks.vocabulary.row_bytes
        name, how, family = LOGITS
        classes.append(_linears(name, how, wide, logits, family, 1, plan))
    square = 6.0 * blocks.rows * width * width
    lines = tuple(Curve((0.0, float(width)), (0.0, square * each), width) for each in operation_seconds)
    curves = tuple((line,) * len(classes) for line in lines)
    unit_move = UnitMoveCost(4 * width * head * blocks.parameter_bytes, 2 * width * blocks.parameter_bytes, row_bytes)
    return Costs(tuple(classes), curves, (grain,) * plan.ranks, link, item_bytes, unit_move=unit_move)


def _linears(
    name: str, how: Any, wide: tuple[int, ...], blocks: Blocks, family: Any, per_unit: int, plan: UnitPlan
) -> LinearClass:
    return LinearClass(name, how, wide, wide, blocks.rows, blocks.calls, family, per_unit).owned_by(plan)


def link_of(ranks: int, latency_seconds: float, byte_seconds: float) -> Link:
    """Return the times of transfers: broadcasts and reductions along a tree, pieces directly to one rank."""
    tree = Line(math.ceil(math.log2(ranks)) * latency_seconds, byte_seconds) if ranks > 1 else Line()
    return Link(tree, tree, Line(latency_seconds, byte_seconds))
