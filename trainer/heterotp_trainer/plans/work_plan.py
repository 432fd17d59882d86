"""The matrix products of one iteration, and how much of them a plan takes from whom, counted in contraction columns.

Only + - * / and comparisons here and in all of this package: they round alike on every host, so that every rank
comes to the same plan.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from heterotp_api.policy import BalancingSettings
from numpy.typing import NDArray

from heterotp_trainer.plans.cost_tables import Array, Tables, added, total
from heterotp_trainer.plans.ownership import NOBODY_SAID, Ownership
from heterotp_trainer.plans.unit_plan import Family, Plan, balanced_counts

FEW = 0.125  # of an even share of the work
ROUNDING = 1e-6  # of a block: 27.999... blocks by floats are 28
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

    def owned_by(self, plan: Plan) -> "LinearClass":
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
class Moving:
    """What moving a unit takes: bytes by family (parameters and all that the optimizer keeps), and the price.

    correction: what the last move took over what was expected of it.
    """

    heads_bytes: float = 0.0
    ffn_bytes: float = 0.0
    correction: float = 1.0

    def unit_bytes(self, family: Family) -> float:
        """Return the bytes of one unit of a family."""
        return self.heads_bytes if family == "heads" else self.ffn_bytes


@dataclass(frozen=True)
class Costs:
    """What decisions know of the ranks, measured before: curves[rank][class], columns per block, link, extraction."""

    classes: tuple[LinearClass, ...]
    curves: tuple[tuple[Curve, ...], ...]
    grains: tuple[int, ...]
    link: Link = Link()
    item_bytes: int = 4
    allocation: float = 0.0  # Omega1, seconds an iteration
    extraction: Line = Line()  # Omega2, seconds an iteration over the share of columns pruned
    moving: Moving = Moving()

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.curves)

    @cached_property
    def tables(self) -> Tables:
        """Classes and curves as arrays over the ranks."""
        return Tables.of(self.classes, self.curves)

    def owned_by(self, plan: Plan) -> "Costs":
        """Return the costs under another plan; the curves stay as they were measured."""
        other = replace(self, classes=tuple(each.owned_by(plan) for each in self.classes))
        other.__dict__["by_family"] = self.by_family  # which no plan changes
        return other

    @cached_property
    def idle(self) -> NDArray[np.bool_]:
        """Whether a rank has so little work that it says little about its speed: less than a pretest measures. [e]"""
        work = added(self.tables.operations * self.tables.columns, self.ranks)
        few: NDArray[np.bool_] = work < FEW * total(work) / max(1, self.ranks)
        return few

    @cached_property
    def by_family(self) -> dict[Family, tuple[Array, Array]]:
        """What reshard.py makes of the curves, once."""
        return {}

    def full_seconds(self, rank: int) -> float:
        """Return what the rank's products take by its curves with nothing taken from it."""
        return float(self.tables.full[rank])


@dataclass(frozen=True)
class Taken:
    """Columns taken from one rank of every linear of one class."""

    pruned: int = 0
    migrated: int = 0


Reliefs = Mapping[int, tuple[Taken, ...]]


@dataclass(frozen=True)
class Piece:
    """Columns [start, stop) of those that the sender gives away, computed by the receiver."""

    sender: int
    receiver: int
    start: int
    stop: int

    @property
    def columns(self) -> int:
        """Number of columns."""
        return self.stop - self.start


@dataclass(frozen=True)
class WorkPlan:
    """Who computes how much until the next decision; the same on all ranks.

    reliefs: per relieved rank and class. receivers: who takes what migrates, in order, by weight. The rest says why.
    """

    serial: int = 0
    settings: BalancingSettings | None = None
    reliefs: tuple[tuple[int, tuple[Taken, ...]], ...] = ()
    receivers: tuple[tuple[int, float], ...] = ()
    primitive: Primitive = "broadcastReduce"
    stragglers: tuple[int, ...] = ()
    basis: tuple[float, ...] = ()  # full-work matmul seconds of all ranks that it was decided on
    link: Link | None = None  # prices of transfers that it was decided on
    repriced: int = 0  # how often these prices changed it
    base_wait: float | None = None  # seconds an iteration waits at least, seen while nothing migrated
    predicted_seconds: float | None = None
    ownership: Ownership = NOBODY_SAID
    reason: str = ""

    @cached_property
    def taken(self) -> Reliefs:
        """What is taken, by rank."""
        return dict(self.reliefs)

    @property
    def work(self) -> tuple[object, ...]:
        """What is done, whatever the reason: equal work makes equal plans but for their numbers."""
        return self.reliefs, self.receivers, self.primitive

    @property
    def migrates(self) -> bool:
        """Whether anything migrates."""
        return any(taken.migrated for _, classes in self.reliefs for taken in classes)

    @property
    def senders(self) -> tuple[int, ...]:
        """Ranks that give columns away, ascending."""
        return tuple(rank for rank, classes in self.reliefs if any(taken.migrated for taken in classes))

    @cached_property
    def hash(self) -> str:
        """16 hex digits that are equal on all ranks when and only when they do the same."""
        reliefs = [(rank, [(t.pruned, t.migrated) for t in classes]) for rank, classes in self.reliefs]
        receivers = [(rank, weight.hex()) for rank, weight in self.receivers]
        done = [self.serial, reliefs, receivers, self.primitive, self.ownership.digest]
        text = json.dumps(done, separators=(",", ":"))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    @cached_property
    def _pieces(self) -> dict[int, dict[int, tuple[Piece, ...]]]:
        return {}

    def pieces(self, linears: int) -> tuple[Piece, ...]:
        """Return who computes which of the migrated columns of class number `linears`."""
        return tuple(piece for parts in self.pieces_by_sender(linears).values() for piece in parts)

    def pieces_by_sender(self, linears: int) -> dict[int, tuple[Piece, ...]]:
        """Return the pieces of class number `linears` of every rank that gives away columns of it."""
        if linears not in self._pieces:
            counts = {rank: classes[linears].migrated for rank, classes in self.reliefs if classes[linears].migrated}
            self._pieces[linears] = {rank: pieces({rank: count}, self.receivers) for rank, count in counts.items()}
        return self._pieces[linears]


def pieces(counts: Mapping[int, int], receivers: Sequence[tuple[int, float]]) -> tuple[Piece, ...]:
    """Cut each sender's columns into one range per receiver, in proportion to its weight.

    Receivers take their turn by virtual rank from the sender on, so that remainders of several senders spread.
    """
    out: list[Piece] = []
    for sender, columns in counts.items():
        turn = in_turn(receivers, sender)
        start = 0
        for (receiver, _), count in zip(turn, balanced_counts(columns, [w for _, w in turn]), strict=True):
            if count:
                out.append(Piece(sender, receiver, start, start + count))
            start += count
    return tuple(out)


def in_turn(receivers: Sequence[tuple[int, float]], sender: int) -> list[tuple[int, float]]:
    """Return receivers by virtual rank r' = (r + e - r_k) mod e, r_k the sender (the paper's section 4.2)."""
    return sorted(receivers, key=lambda receiver: (receiver[0] < sender, receiver[0]))


def blocks(columns: float, grain: int) -> int:
    """Return columns rounded down to whole blocks."""
    return int(columns / grain + ROUNDING) * grain


def grain_for(asked: int | None, auto: int, columns: int) -> int:
    """Return columns per block: as asked, else by device, but never above L/32, rounded down to a power of two."""
    if asked is not None:
        return max(1, min(asked, columns))
    grain = 1
    while grain * 2 <= min(auto, columns // 32):
        grain *= 2
    return grain
