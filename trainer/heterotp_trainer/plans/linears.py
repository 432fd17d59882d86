"""The linears of one model by class: their sizes, and the measured costs of products and transfers."""

from dataclasses import dataclass, replace
from typing import Literal

from heterotp_trainer.plans.unit_plan import Family, UnitPlan

Parallel = Literal["column", "row"]


@dataclass(frozen=True)
class LinearClass:
    """Linears of equal sizes: columns (contraction, L) and outputs by rank, rows per call, calls per iteration.

    A call is one forward and one backward pass through one linear. per_unit: columns of a row-parallel linear, or
    outputs of a column-parallel one, that belong to one unit of the family.
    """

    name: str
    parallel: Parallel
    columns: tuple[int, ...]
    outputs: tuple[int, ...]
    rows: int
    calls: int
    family: Family = "ffn"
    per_unit: int = 1

    def owned_by(self, plan: UnitPlan) -> "LinearClass":
        """Return the class with its shards under another unit plan."""
        sharded = tuple(units * self.per_unit for units in plan.counts(self.family))
        if self.parallel == "column":
            return replace(self, outputs=sharded)
        return replace(self, columns=sharded)

    def operations(self, rank: int, columns: float) -> float:
        """Return the operations of forward, dX and dW on this many columns, in one iteration."""
        return 2.0 * self.rows * columns * self.outputs[rank] * 3 * self.calls


@dataclass(frozen=True)
class Curve:
    """Seconds of one call (forward and backward) over its columns: measured points, joined by lines.

    outputs: of the measured products (None: those of the class). Seconds depend on columns x outputs.
    """

    columns: tuple[float, ...]
    seconds: tuple[float, ...]
    outputs: int | None = None


@dataclass(frozen=True)
class Line:
    """A cost of fixed + slope * amount: seconds, seconds per unit of the amount."""

    fixed: float = 0.0
    slope: float = 0.0

    def at(self, amount: float) -> float:
        """Return the seconds of an amount; 0 for an amount of 0."""
        return self.fixed + self.slope * amount if amount > 0 else 0.0

    def scaled(self, factor: float) -> "Line":
        """Return the line with both parts multiplied by the factor."""
        return Line(self.fixed * factor, self.slope * factor)


@dataclass(frozen=True)
class Link:
    """Seconds over bytes of one transfer (Phi1, the paper's section 4): broadcast, reduction, piece to one rank."""

    broadcast: Line = Line()
    reduce: Line = Line()
    piece: Line = Line()

    def scaled(self, factor: float) -> "Link":
        """Return the link with all costs multiplied by the factor."""
        return Link(self.broadcast.scaled(factor), self.reduce.scaled(factor), self.piece.scaled(factor))


@dataclass(frozen=True)
class UnitMoveCost:
    """Bytes of one unit by family: parameters and optimizer state, all layers.

    correction: measured over predicted seconds of the last move.
    """

    heads_bytes: float = 0.0
    ffn_bytes: float = 0.0
    vocab_bytes: float = 0.0
    correction: float = 1.0

    def unit_bytes(self, family: Family) -> float:
        """Return the bytes of one unit of a family."""
        by_family = {"heads": self.heads_bytes, "ffn": self.ffn_bytes, "vocab": self.vocab_bytes}
        return by_family[family]
