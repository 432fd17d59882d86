"""Who owns which units by decision, for which speeds that was decided, and what is about to change."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property

from heterotp_trainer.plans.unit_plan import UnitPlan


@dataclass(frozen=True)
class Proposal:
    """Shares that all ranks have decided on and reserve memory for; they move once every rank has said that it can.

    number: of the decision, by which ranks answer. asked: whether the policy asks for it, be it faster or not. seconds:
    of an iteration, as predicted; words: why, for people.
    """

    decision_id: int
    shards: UnitPlan
    slowness: tuple[float, ...]
    evicted: tuple[int, ...]
    asked: bool
    seconds: float
    words: str


@dataclass(frozen=True)
class Ownership:
    """The shares in force (None: nobody said) and the case for others.

    slowness: seconds for equal work that the shares were made for, by rank; relative: only their ratios are known, of
    the first shares. drifted: ranks of whom it is no longer true; since: those of them of whom it has not been all the
    while that was counted. lost: seconds lost by that, counted up to observation number `counted`. moved: number of
    the observation before the last move; refused: that at which some rank last had no memory for one. first: the shares
    before any move.
    """

    shards: UnitPlan | None = None
    slowness: tuple[float, ...] = ()
    evicted: tuple[int, ...] = ()
    drifted: tuple[int, ...] = ()
    since: tuple[int, ...] = ()
    lost: float = 0.0
    counted: int = 0
    relative: bool = True
    moved: int | None = None
    first: UnitPlan | None = None
    proposal: Proposal | None = None
    refused: int | None = None

    @cached_property
    def digest(self) -> str:
        """Equal on all ranks when and only when they hold the same units and are about to move the same."""
        shards = [plan.hash if plan is not None else "" for plan in (self.shards, self._proposed)]
        number = self.proposal.decision_id if self.proposal is not None else 0
        return hashlib.blake2b(json.dumps([*shards, number]).encode(), digest_size=8).hexdigest()

    @property
    def _proposed(self) -> UnitPlan | None:
        return self.proposal.shards if self.proposal is not None else None


UNKNOWN_OWNERSHIP = Ownership()
