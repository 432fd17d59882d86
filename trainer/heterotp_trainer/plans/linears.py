"""The linears of one model by class: their sizes, and the measured cost of their products and transfers."""

from dataclasses import dataclass, replace
from typing import Literal

from heterotp_trainer.plans.unit_plan import Family, UnitPlan

Parallel = Literal["column", "row"]


Primitive = Literal["broadcastReduce", "scatterGather"]


@dataclass(frozen=True)
class LinearClass:
    """Linears of equal sizes: per rank L contraction columns and R outputs; M rows a call, calls an iteration.

    A call is one forward and one backward pass through one linear. `per_unit`: columns of a row-parallel linear, or
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
        """Return the class as it is under another plan."""
        sharded = tuple(units * self.per_unit for units in plan.counts(self.family))
        if self.parallel == "column":
            return replace(self, outputs=sharded)
        return replace(self, columns=sharded)

    def operations(self, rank: int, columns: float) -> float:
        """Return the operations of all three products with so many columns, in one iteration."""
        return 2.0 * self.rows * columns * self.outputs[rank] * 3 * self.calls


@dataclass(frozen=True)
class Curve:
    """Seconds of one call (forward and backward) over its number of columns: measured points, lines between them.

    outputs: those of the products that were measured (None: as many as the class has); with twice as many outputs half
    of the columns take as long.
    """

    columns: tuple[float, ...]
    seconds: tuple[float, ...]
    outputs: int | None = None


@dataclass(frozen=True)
class Line:
    """A cost with a fixed part: seconds + seconds per unit."""

    fixed: float = 0.0
    slope: float = 0.0

    def at(self, amount: float) -> float:
        """Return the seconds of an amount; nothing costs nothing."""
        return self.fixed + self.slope * amount if amount > 0 else 0.0

    def scaled(self, factor: float) -> "Line":
        """Return the line of costs so many times as high."""
        return Line(self.fixed * factor, self.slope * factor)


@dataclass(frozen=True)
class Link:
    """What moving bytes takes (Phi1 of the paper's section 4): one broadcast, one reduction, one piece to one peer."""

    broadcast: Line = Line()
    reduce: Line = Line()
    piece: Line = Line()

    def scaled(self, factor: float) -> "Link":
        """Return the link that is so many times as dear."""
        return Link(self.broadcast.scaled(factor), self.reduce.scaled(factor), self.piece.scaled(factor))


@dataclass(frozen=True)
class UnitMoveCost:
    """What moving a unit takes: bytes by family (parameters and all that the optimizer keeps), and the price.

    correction: what the last move took over what was expected of it.
    """

    heads_bytes: float = 0.0
    ffn_bytes: float = 0.0
    correction: float = 1.0

    def unit_bytes(self, family: Family) -> float:
        """Return the bytes of one unit of a family."""
        return self.heads_bytes if family == "heads" else self.ffn_bytes
