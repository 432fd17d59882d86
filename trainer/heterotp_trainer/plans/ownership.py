"""The unit plan in force, the speeds it was made for, and the proposal for another one."""

import hashlib
import json
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from heterotp_trainer.plans.alternation import Alternations
from heterotp_trainer.plans.unit_plan import Family, UnitPlan


class MoveCause(Enum):
    """Why units are to move."""

    SPEEDS = "speeds"  # ranks are slower or faster than expected
    UNEVEN = "uneven"  # the shares do not fit the speeds, although no rank changed
    EVICTION = "eviction"  # the policy evicts other ranks than before
    NO_EVICTION = "noEviction"  # the policy no longer evicts any rank
    LIMITS = "limits"  # the shares in force break minUnits or memoryLimitBytes


@dataclass(frozen=True)
class MoveCase:
    """The numbers behind a proposal.

    slower, faster: ranks, with the largest ratio of measured to expected slowness (or its inverse) of any of them.
    units: per family that moves the units that change owner, and all units. now_seconds, then_seconds: one iteration
    without its collectives, before and after the move.
    """

    cause: MoveCause
    slower: tuple[int, ...]
    slower_ratio: float
    faster: tuple[int, ...]
    faster_ratio: float
    evicted: tuple[int, ...]
    units: tuple[tuple[Family, int, int], ...]
    moved_bytes: float
    move_seconds: float
    lost_seconds: float
    now_seconds: float
    then_seconds: float


@dataclass(frozen=True)
class Proposal:
    """Shares for which all ranks reserve memory; they come into force when every rank has reported success.

    decision_id: of the plan that proposes them; ranks answer with it. slowness: see Ownership. required: whether the
    policy demands the move, also where it is not faster.
    """

    decision_id: int
    unit_plan: UnitPlan
    slowness: tuple[float, ...]
    evicted: tuple[int, ...]
    required: bool
    case: MoveCase


@dataclass(frozen=True)
class Ownership:
    """The shares in force and the case for other ones. Points in time are numbers of observations (History.count)."""

    unit_plan: UnitPlan | None = None  # None: not known yet
    slowness: tuple[float, ...] = ()  # seconds for an even share that the unit plan was made for, by rank
    evicted: tuple[int, ...] = ()
    drifted: tuple[int, ...] = ()  # ranks whose slowness has changed since
    persistent: tuple[int, ...] = ()  # those that have drifted during the whole count of lost seconds
    lost_seconds: float = 0.0  # against the best shares, since ranks drifted
    counted_at: int = 0  # up to which observation lost_seconds is counted
    relative: bool = True  # of the first unit plan: only ratios of `slowness` are known, not seconds
    moved_at: int | None = None  # the last observation before the last move
    first_unit_plan: UnitPlan | None = None  # before any move
    first_slowness: tuple[float, ...] = ()  # that the first unit plan was made for, once units have moved
    proposal: Proposal | None = None
    refused_at: int | None = None  # when a rank last reported too little memory for a proposal
    alternations: Alternations = ()  # of the ranks for whose speed units moved

    @cached_property
    def digest(self) -> str:
        """16 hex digits; equal if and only if unit plan and proposal are equal."""
        plans = [plan.hash if plan is not None else "" for plan in (self.unit_plan, self._proposed)]
        decision_id = self.proposal.decision_id if self.proposal is not None else 0
        return hashlib.blake2b(json.dumps([*plans, decision_id]).encode(), digest_size=8).hexdigest()

    @property
    def declared_slowness(self) -> tuple[float, ...]:
        """Slowness that the first shares were made for, by rank; only its ratios are known."""
        return self.slowness if self.moved_at is None else self.first_slowness

    @property
    def _proposed(self) -> UnitPlan | None:
        return self.proposal.unit_plan if self.proposal is not None else None


UNKNOWN_OWNERSHIP = Ownership()
