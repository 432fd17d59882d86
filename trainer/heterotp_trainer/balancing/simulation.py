"""Simulated training: the trainer's own decisions on computed times, iteration by iteration.

An iteration takes the predicted seconds of the plan in force at the true speeds. As in the trainer, decisions use it
one boundary later, ranks answer a proposal two boundaries later, and iterations after a change are not measured.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from heterotp_api.policy import BalancingSettings

from heterotp_trainer.balancing.decide import decide
from heterotp_trainer.balancing.history import History, Observation
from heterotp_trainer.balancing.prediction import (
    iteration_seconds,
    kept_seconds,
    move_seconds,
    pruned_share,
    received_seconds,
)
from heterotp_trainer.balancing.reshard_problem import ReshardProblem, counts_of
from heterotp_trainer.plans.arrays import Array
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.ownership import Ownership
from heterotp_trainer.plans.unit_plan import FAMILIES, UnitPlan
from heterotp_trainer.plans.work_plan import WorkPlan

ANSWER_BOUNDARIES = 2  # from a proposal to the ranks' answers


@dataclass(frozen=True)
class Machine:
    """The ranks to simulate: costs, first shares, and seconds per iteration of all other work."""

    costs: Costs
    unit_plan: UnitPlan
    fixed: float = 0.0
    unit_seconds: tuple[float, float, float] = (0.0, 0.0, 0.0)  # with an even share, in the order of FAMILIES
    wait: float = 0.0  # least seconds that an iteration waits in its collectives
    slowness: tuple[float, ...] = ()  # that the first shares were made for, see Ownership


@dataclass(frozen=True)
class Iteration:
    """One iteration: its seconds with those of a move after it; deleted: pruned share of all work, 0..1."""

    seconds: float
    moved: bool
    moved_seconds: float
    deleted: float
    plan: WorkPlan


class Simulation:
    """One job under a policy; the policy may change between iterations."""

    def __init__(self, machine: Machine, policy: BalancingSettings) -> None:
        self.machine, self.policy = machine, policy
        self.plan = WorkPlan(ownership=Ownership(machine.unit_plan, machine.slowness))
        self._unit_plan, self._history = machine.unit_plan, History(policy.window)
        self._newest: tuple[Observation, UnitPlan] | None = None
        self._answers = deque([0] * ANSWER_BOUNDARIES, maxlen=ANSWER_BOUNDARIES)
        self._fresh = True
        self._unchanged, self._chis = 0, list[float]()

    @property
    def quiet(self) -> bool:
        """Whether the plan is stable for as long as the slow-downs stay the same."""
        return self._unchanged > 2 * self.policy.window + ANSWER_BOUNDARIES

    def run(self, chis: Sequence[float], count: int) -> list[tuple[int, Iteration]]:
        """Simulate `count` iterations at these slow-downs; return runs of equal iterations, each with its length."""
        stretches: list[tuple[int, Iteration]] = []
        for done in range(count):
            stretches.append((1, self.step(chis)))
            if self.quiet and count - done > 1:
                return [*stretches, (count - done - 1, stretches[-1][1])]
        return stretches

    @property
    def _costs(self) -> Costs:
        return self.machine.costs.owned_by(self._unit_plan)

    def step(self, chis: Sequence[float]) -> Iteration:
        """Simulate one iteration in which rank i's products take chis[i] times as long."""
        seen, plan = self.seen(chis), self.plan
        seconds = self._seconds(seen, plan)
        deleted = pruned_share(self._costs, plan.reductions_by_rank) if plan.reductions else 0.0
        moved = self._boundary(None if self._fresh else (seen, self._unit_plan))
        same = self.plan is plan and moved is None and list(chis) == self._chis
        self._unchanged, self._chis = self._unchanged + 1 if same else 0, list(chis)
        return Iteration(seconds + (moved or 0.0), moved is not None, moved or 0.0, deleted, plan)

    def seen(self, slowdowns: Sequence[float]) -> Observation:
        """Return the observation of an iteration under these slow-downs."""
        chis, machine, ranks = np.asarray(slowdowns, dtype=np.float64), self.machine, len(slowdowns)
        attention, network, vocabulary = (
            np.asarray(self._unit_plan.counts(f)) * each * ranks / max(1, self._unit_plan.total(f))
            for f, each in zip(FAMILIES, machine.unit_seconds, strict=True)
        )
        flat, unit = np.ones(ranks), attention + network + vocabulary
        rows = [self._costs.tables.full * chis, unit, flat * machine.fixed, flat * machine.wait, attention, vocabulary]
        probed = np.where(self._costs.idle, chis, 0.0)
        return Observation.from_rows([*rows, probed, 0.0 * flat, self._executed(chis)], self.plan.migrates)

    def _executed(self, chis: Array) -> Array:
        """Return the matmul seconds of each rank under the plan in force: [e]."""
        reductions, costs = self.plan.reductions_by_rank, self._costs
        received = received_seconds(costs, reductions, self.plan.receivers)
        executed: Array = (kept_seconds(costs, reductions) + received) * chis
        return executed

    def _seconds(self, seen: Observation, plan: WorkPlan) -> float:
        if plan.reductions:
            wait = self.machine.wait
            return iteration_seconds(self._costs, seen, plan.reductions_by_rank, plan.receivers, plan.primitive, wait)
        return (
            ReshardProblem(self._costs, seen, self._unit_plan).seconds(counts_of(self._unit_plan)) + self.machine.wait
        )

    def _boundary(self, newest: tuple[Observation, UnitPlan] | None) -> float | None:
        """Decide on the observation of one iteration ago; return the seconds of a move, None without one."""
        if self._history.window != self.policy.window:
            self._history = self._history.resized(self.policy.window)
        if self._newest is not None:
            seen, unit_plan = self._newest
            same = unit_plan == self._unit_plan
            costs = self.machine.costs.owned_by(unit_plan)
            self._history.add(seen if same else ReshardProblem(costs, seen, unit_plan).seen_under(self._unit_plan))
        self._newest = newest
        ranks = self._unit_plan.ranks
        decided = decide(self._history, self.policy, self.plan, self._costs, [self._answers[0]] * ranks)
        proposal = decided.ownership.proposal
        self._answers.append(proposal.decision_id if proposal is not None else 0)
        self._fresh, before, self.plan = decided.work != self.plan.work, self._unit_plan, decided
        after = decided.ownership.unit_plan
        if after is None or after == before:
            return None
        return self._move(before, after)

    def _move(self, before: UnitPlan, after: UnitPlan) -> float:
        costs = self._costs
        self._history = self._history.rebased(lambda seen: ReshardProblem(costs, seen, before).seen_under(after))
        self._unit_plan, self._fresh = after, True
        return move_seconds(costs, counts_of(before), counts_of(after))
