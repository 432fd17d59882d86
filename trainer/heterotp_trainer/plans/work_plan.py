"""The matrix products of one iteration, and how much of them a plan takes from whom, counted in contraction columns.

Only + - * / and comparisons here and in all of this package: they round alike on every host, so that every rank
comes to the same plan.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from heterotp_api.policy import BalancingSettings

from heterotp_trainer.plans.linears import Link, Primitive
from heterotp_trainer.plans.ownership import UNKNOWN_OWNERSHIP, Ownership
from heterotp_trainer.plans.unit_plan import balanced_counts
from heterotp_trainer.plans.work_reduction import Reductions, WorkReduction


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

    decision_id: int = 0
    settings: BalancingSettings | None = None
    reductions: tuple[tuple[int, tuple[WorkReduction, ...]], ...] = ()
    receivers: tuple[tuple[int, float], ...] = ()
    primitive: Primitive = "broadcastReduce"
    stragglers: tuple[int, ...] = ()
    basis: tuple[float, ...] = ()  # full-work matmul seconds of all ranks that it was decided on
    link: Link | None = None  # prices of transfers that it was decided on
    repriced: int = 0  # how often these prices changed it
    base_wait: float | None = None  # seconds an iteration waits at least, seen while nothing migrated
    predicted_seconds: float | None = None
    ownership: Ownership = UNKNOWN_OWNERSHIP
    reason: str = ""

    @cached_property
    def reductions_by_rank(self) -> Reductions:
        """What is taken, by rank."""
        return dict(self.reductions)

    @property
    def work(self) -> tuple[object, ...]:
        """What is done, whatever the reason: equal work makes equal plans but for their numbers."""
        return self.reductions, self.receivers, self.primitive

    @property
    def migrates(self) -> bool:
        """Whether anything migrates."""
        return any(taken.migrated for _, classes in self.reductions for taken in classes)

    @property
    def senders(self) -> tuple[int, ...]:
        """Ranks that give columns away, ascending."""
        return tuple(rank for rank, classes in self.reductions if any(taken.migrated for taken in classes))

    @cached_property
    def hash(self) -> str:
        """16 hex digits that are equal on all ranks when and only when they do the same."""
        reductions = [(rank, [(t.pruned, t.migrated) for t in classes]) for rank, classes in self.reductions]
        receivers = [(rank, weight.hex()) for rank, weight in self.receivers]
        done = [self.decision_id, reductions, receivers, self.primitive, self.ownership.digest]
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
            counts = {rank: classes[linears].migrated for rank, classes in self.reductions if classes[linears].migrated}
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
