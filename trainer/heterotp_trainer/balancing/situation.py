"""What a strategy decides on, and what it returns: one signature for all of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from heterotp_api.policy import BalancingSettings
from heterotp_api.strategies import Primitive

from heterotp_trainer.balancing.detection import Detection
from heterotp_trainer.balancing.history import History, Observation
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.ownership import Ownership, Proposal
from heterotp_trainer.plans.work_plan import Cause, WorkPlan
from heterotp_trainer.plans.work_reduction import Reductions


class WorkDue(Enum):
    """Why the work of ranks is to be decided anew."""

    FIXED_RATIO = "fixedRatio"  # a policy that fixes its ratio has just come into force
    REDUCTIONS = "reductions"  # other stragglers, or one whose time changed
    PRICES = "prices"  # transfers take more or less time than the plan assumed


@dataclass(frozen=True)
class Situation:
    """One boundary: the plan in force, the policy in force, what was measured, and what is due.

    answers: by rank the decision_id of the proposal that memory is reserved for, negative where it could not be, 0
    before the attempt. seen: the medians to plan on; None while no window is full. new_policy: whether the plan was
    made under another policy. units: whether units may move. stragglers: the ranks whose work is to be reduced,
    ascending. known_wait: least seconds that an iteration waits in its own collectives. work: None: nothing is due.
    """

    history: History
    policy: BalancingSettings
    costs: Costs
    plan: WorkPlan
    detection: Detection
    answers: Sequence[int]
    seen: Observation | None
    new_policy: bool
    units: bool
    stragglers: tuple[int, ...]
    known_wait: float | None
    work: WorkDue | None = None

    @property
    def due(self) -> bool:
        """Whether anything is to be decided anew."""
        return self.new_policy or self.units or self.work is not None

    @property
    def base_wait(self) -> float:
        """Least seconds that an iteration waits in its own collectives; 0 while unknown."""
        return self.known_wait or 0.0

    @property
    def least_wait(self) -> float | None:
        """Least wait as measured now; while columns migrate, waits contain their transfers: then the known one."""
        seen = self.seen
        return self.known_wait if seen is None or seen.migrating else float(min(seen.wait))

    @property
    def aside(self) -> float:
        """Seconds of an iteration that no plan changes (data and control), on rank 0, whose iterations are shown."""
        seen = self.seen if self.seen is not None else self.detection.seen
        return float(seen.aside[0]) if seen is not None else 0.0

    @property
    def reducible(self) -> Observation | None:
        """The medians to plan reductions on; None where none are due or no rank is a straggler."""
        return self.seen if self.work is not None and self.stragglers else None


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
