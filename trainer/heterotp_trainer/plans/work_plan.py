"""The work plan: how many columns of which rank are pruned or migrated until the next decision, and why.

All of `plans` and `balancing` uses only + - * / and comparisons on floats, which round alike on every host: every rank
computes the same plan.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from heterotp_api.policy import BalancingSettings
from heterotp_api.strategies import Primitive

from heterotp_trainer.plans.alternation import Alternations
from heterotp_trainer.plans.linears import Link
from heterotp_trainer.plans.ownership import UNKNOWN_OWNERSHIP, Ownership
from heterotp_trainer.plans.unit_plan import balanced_counts
from heterotp_trainer.plans.work_reduction import Reductions, WorkReduction


@dataclass(frozen=True)
class Piece:
    """Columns [start, stop) of the sender's migrated columns, computed by the receiver."""

    sender: int
    receiver: int
    start: int
    stop: int

    @property
    def columns(self) -> int:
        """Number of columns."""
        return self.stop - self.start


class Cause(Enum):
    """Why a plan is as it is; `WorkPlan.reason` is its sentence for people."""

    NOT_MEASURED = "notMeasured"  # no window of measurements is full yet
    SINGLE_RANK = "singleRank"  # a job of one rank balances nothing
    NO_STRAGGLER = "noStraggler"
    LEFT_ALONE = "leftAlone"  # stragglers keep their work: the strategy or the policy reduces none
    NO_FASTER_PLAN = "noFasterPlan"
    REDUCED = "reduced"  # stragglers prune or migrate columns
    FIXED_RATIO = "fixedRatio"  # the policy fixes ratio and ranks
    UNITS_MOVED = "unitsMoved"
    MEMORY_REFUSED = "memoryRefused"  # a rank reported too little memory for a proposal
    NO_SHARES = "noShares"  # minUnits and memoryLimitBytes leave no shares


@dataclass(frozen=True)
class WorkPlan:
    """The work of each rank until the next decision, the same on all ranks, and what it was decided on."""

    decision_id: int = 0
    settings: BalancingSettings | None = None
    reductions: tuple[tuple[int, tuple[WorkReduction, ...]], ...] = ()  # by rank, ascending: one per class of linears
    receivers: tuple[tuple[int, float], ...] = ()  # ranks that compute migrated columns, with weights
    primitive: Primitive = "broadcastReduce"
    stragglers: tuple[int, ...] = ()
    basis: tuple[float, ...] = ()  # full-work matmul seconds of all ranks when it was decided
    link: Link | None = None  # prices of transfers when it was decided
    repriced: int = 0  # how often new prices of transfers changed it
    alternations: Alternations = ()  # of the ranks whose work was reduced
    base_wait: float | None = None  # least seconds that an iteration waits in collectives, without migration
    predicted_seconds: float | None = None  # of one iteration
    untouched_seconds: float | None = None  # of one iteration, predicted if nothing were reduced or moved
    ownership: Ownership = UNKNOWN_OWNERSHIP
    explained_id: int = 0  # decision_id that cause and reason belong to: a proposal raises decision_id without them
    cause: Cause = Cause.NOT_MEASURED
    reason: str = ""  # for people

    @cached_property
    def reductions_by_rank(self) -> Reductions:
        """The reductions of each rank that has any."""
        return dict(self.reductions)

    @property
    def work(self) -> tuple[object, ...]:
        """What ranks compute under the plan, without its decision_id and reason."""
        return self.reductions, self.receivers, self.primitive

    @property
    def migrates(self) -> bool:
        """Whether any column migrates."""
        return any(taken.migrated for _, classes in self.reductions for taken in classes)

    @property
    def senders(self) -> tuple[int, ...]:
        """Ranks whose columns migrate, ascending."""
        return tuple(rank for rank, classes in self.reductions if any(taken.migrated for taken in classes))

    @cached_property
    def hash(self) -> str:
        """16 hex digits; equal if and only if decision_id, work and ownership are equal."""
        reductions = [(rank, [(t.pruned, t.migrated) for t in classes]) for rank, classes in self.reductions]
        receivers = [(rank, weight.hex()) for rank, weight in self.receivers]
        done = [self.decision_id, reductions, receivers, self.primitive, self.ownership.digest]
        text = json.dumps(done, separators=(",", ":"))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    @cached_property
    def _pieces(self) -> dict[int, dict[int, tuple[Piece, ...]]]:
        return {}

    def pieces(self, linears: int) -> tuple[Piece, ...]:
        """Return the pieces of class number `linears`, all senders."""
        return tuple(piece for parts in self.pieces_by_sender(linears).values() for piece in parts)

    def pieces_by_sender(self, linears: int) -> dict[int, tuple[Piece, ...]]:
        """Return the pieces of class number `linears`, by sender."""
        if linears not in self._pieces:
            counts = {rank: classes[linears].migrated for rank, classes in self.reductions if classes[linears].migrated}
            self._pieces[linears] = {rank: pieces({rank: count}, self.receivers) for rank, count in counts.items()}
        return self._pieces[linears]


def pieces(counts: Mapping[int, int], receivers: Sequence[tuple[int, float]]) -> tuple[Piece, ...]:
    """Return one contiguous range of each sender's columns per receiver, in proportion to its weight.

    Ranges follow the virtual ranks counted from the sender, so that remainders of several senders spread.
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
    """Return receivers by virtual rank r' = (r + e - r_k) mod e, where r_k is the sender (the paper's section 4.2)."""
    return sorted(receivers, key=lambda receiver: (receiver[0] < sender, receiver[0]))
