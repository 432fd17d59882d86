"""What a strategy decides on, and what it returns: one signature for all of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Flag, auto

from heterotp_api.policy import BalancingSettings

from heterotp_trainer.balancing.detection import Detection
from heterotp_trainer.balancing.history import History, Observation
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.linears import Primitive
from heterotp_trainer.plans.ownership import Ownership, Proposal
from heterotp_trainer.plans.work_plan import Cause, WorkPlan
from heterotp_trainer.plans.work_reduction import Reductions


class Due(Flag):
    """What is to be decided anew at a boundary."""

    NOTHING = 0
    FIXED_RATIO = auto()  # a policy that fixes its ratio has just come into force
    REDUCTIONS = auto()  # other stragglers, or one whose time changed
    PRICES = auto()  # transfers cost more or less than the plan assumed
    UNITS = auto()  # units may move


WORK = Due.FIXED_RATIO | Due.REDUCTIONS | Due.PRICES


@dataclass(frozen=True)
class Situation:
    """One boundary: the plan in force under the policy in force, what was measured, and what is due.

    seen: the medians to plan on; None only while nothing is measured. answers: by rank the decision_id of the proposal
    that memory is reserved for, negative where it could not be, 0 before the attempt.
    """

    history: History
    policy: BalancingSettings
    costs: Costs
    plan: WorkPlan
    detection: Detection
    answers: Sequence[int]
    seen: Observation | None
    due: Due

    @property
    def stragglers(self) -> tuple[int, ...]:
        """The ranks whose work is to be reduced, ascending."""
        return self.plan.stragglers

    @property
    def base_wait(self) -> float:
        """Least seconds that an iteration waits in its own collectives; 0 while unknown."""
        return self.plan.base_wait or 0.0

    @property
    def reducible(self) -> Observation | None:
        """The medians to plan reductions on; None where none are due or no rank is a straggler."""
        return self.seen if self.due & WORK and self.stragglers else None


@dataclass(frozen=True)
class Reduced:
    """Reductions that a strategy proposes. mandated: the policy demands them, also where they are not faster."""

    reductions: Reductions
    receivers: tuple[tuple[int, float], ...] = ()
    primitive: Primitive = "broadcastReduce"
    mandated: bool = False


@dataclass(frozen=True)
class MoveStep:
    """The next state of the ownership of units.

    cause: why the plan gets a new decision_id; None: only `ownership` changes. proposal: a new one, with
    decision_id 0, or the one that the cause is about. short: ranks that reported too little memory.
    """

    ownership: Ownership
    cause: Cause | None = None
    proposal: Proposal | None = None
    short: tuple[int, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """What a strategy proposes; None: stragglers keep all work, ownership stays as it is."""

    work: Reduced | None = None
    units: MoveStep | None = None


Strategy = Callable[[Situation], Candidate]
