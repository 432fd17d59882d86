"""The decision at every boundary: detect, plan, price, explain.

Pure and the same on all ranks: what differs from rank to rank (clocks, gradients, importance of columns) is no input.
"""

from collections.abc import Sequence
from dataclasses import replace

from heterotp_api.policy import BalancingSettings

from heterotp_trainer.balancing import explanations
from heterotp_trainer.balancing.detection import detect, slowdowns
from heterotp_trainer.balancing.due import situation_of
from heterotp_trainer.balancing.history import History
from heterotp_trainer.balancing.prediction import Price, price_of
from heterotp_trainer.balancing.situation import MoveStep, Reduced, Situation, WorkDue
from heterotp_trainer.balancing.strategies import STRATEGIES
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.ownership import MoveCase, Ownership
from heterotp_trainer.plans.work_plan import Cause, WorkPlan

KEPT = Reduced({})  # all ranks keep their work


def decide(
    history: History, policy: BalancingSettings, plan: WorkPlan, costs: Costs, answers: Sequence[int] = ()
) -> WorkPlan:
    """Return the plan from the next iteration on: the one in force unless something is due.

    answers: of all ranks to the proposal in force, see Situation.
    """
    if costs.ranks == 1:
        return _of_a_single_rank(plan, policy)
    detection = detect(history, policy, plan, costs)
    situation = situation_of(history, policy, plan, costs, detection, answers)
    if not situation.due:
        return situation.plan
    candidate = STRATEGIES[policy.strategy](situation)
    found = _first_plan(situation.plan, policy) if situation.new_policy else situation.plan
    if situation.work is not None:
        found = _with_work(situation, found, candidate.work)
    return found if candidate.units is None else _with_units(situation, found, candidate.units)


# -- plans that follow from the policy alone ------------------------------------------------------------------


def _of_a_single_rank(plan: WorkPlan, policy: BalancingSettings) -> WorkPlan:
    """Return the plan of a job of one rank: nothing is balanced under any policy."""
    if plan.settings == policy and plan.cause is Cause.SINGLE_RANK:
        return plan
    return WorkPlan(
        plan.decision_id + 1,
        policy,
        ownership=plan.ownership,
        explained_id=plan.decision_id + 1,
        cause=Cause.SINGLE_RANK,
        reason=explanations.single_rank(policy),
    )


def _first_plan(plan: WorkPlan, policy: BalancingSettings) -> WorkPlan:
    """Return the first plan under another policy: no reductions, and no proposal where units may not move."""
    return WorkPlan(
        plan.decision_id + 1,
        policy,
        alternations=plan.alternations,
        base_wait=plan.base_wait,
        ownership=plan.ownership if policy.moves_units else replace(plan.ownership, proposal=None),
        explained_id=plan.decision_id + 1,
        cause=Cause.NOT_MEASURED,
        reason=explanations.not_measured(policy),
    )


# -- the work of ranks ----------------------------------------------------------------------------------------


def _with_work(situation: Situation, plan: WorkPlan, work: Reduced | None) -> WorkPlan:
    """Return the plan with the candidate's reductions, priced and explained; None: all ranks keep their work.

    plan: the one that it follows.
    """
    chosen = work or KEPT
    costs, wait = situation.costs, situation.base_wait
    price = price_of(costs, situation.seen, chosen.reductions, chosen.receivers, chosen.primitive, wait)
    price = price.beside(situation.aside)
    cause = _cause(situation, work, price)
    if cause not in (Cause.REDUCED, Cause.FIXED_RATIO):
        chosen, price = KEPT, replace(price, predicted=price.untouched)
    made = replace(
        _renewed(situation, plan),
        reductions=tuple((rank, chosen.reductions[rank]) for rank in sorted(chosen.reductions)),
        receivers=chosen.receivers,
        primitive=chosen.primitive,
        predicted_seconds=price.predicted,
        untouched_seconds=price.untouched,
        cause=cause,
        reason=_reason(situation, cause, price),
    )
    unchanged = situation.work is WorkDue.PRICES and made.work == plan.work
    decision_id = plan.decision_id if unchanged else made.decision_id
    return replace(made, decision_id=decision_id, explained_id=decision_id)


def _cause(situation: Situation, work: Reduced | None, price: Price) -> Cause:
    if situation.work is WorkDue.FIXED_RATIO:
        return Cause.FIXED_RATIO
    if not situation.stragglers:
        return Cause.NO_STRAGGLER
    if work is None:
        return Cause.LEFT_ALONE
    assert price.predicted is not None and price.untouched is not None
    if not price.ranks or (price.predicted >= price.untouched and not work.mandated):
        return Cause.NO_FASTER_PLAN
    return Cause.REDUCED


def _renewed(situation: Situation, plan: WorkPlan) -> WorkPlan:
    """Return the plan to fill in; a fixed ratio keeps the decision_id of the first plan under its policy."""
    seen = situation.seen
    if seen is None or situation.work is WorkDue.FIXED_RATIO:
        return replace(plan, base_wait=situation.known_wait)
    return WorkPlan(
        plan.decision_id + 1,
        situation.policy,
        stragglers=situation.stragglers,
        basis=tuple(seen.full.tolist()),
        link=situation.costs.link,
        repriced=plan.repriced + 1 if situation.work is WorkDue.PRICES else 0,
        alternations=plan.alternations,
        base_wait=situation.known_wait,
        ownership=plan.ownership,
    )


def _reason(situation: Situation, cause: Cause, price: Price) -> str:
    policy, seen, stragglers = situation.policy, situation.seen, situation.stragglers
    if cause is Cause.FIXED_RATIO:
        return explanations.fixed_ratio(policy)
    if cause is Cause.NO_STRAGGLER or seen is None:
        return explanations.no_straggler(policy)
    ownership = situation.plan.ownership
    chi = slowdowns(seen, ownership.unit_plan, ownership.declared_slowness, situation.costs)  # as the status shows it
    if cause is Cause.LEFT_ALONE:
        return explanations.left_alone(policy, chi, stragglers)
    if cause is Cause.NO_FASTER_PLAN:
        return explanations.no_faster_plan(policy, chi, stragglers, price)
    return explanations.reduced(seen, chi, stragglers, price, situation.base_wait)


# -- the ownership of units -----------------------------------------------------------------------------------


def _with_units(situation: Situation, plan: WorkPlan, step: MoveStep) -> WorkPlan:
    """Return the plan with the next step of a move; a new decision_id where ranks have something to do or to report."""
    if step.cause is None:
        return _proposed(plan, step)
    if step.cause is Cause.NO_SHARES:
        return _without_shares(plan, step.ownership)
    assert step.proposal is not None
    case = step.proposal.case
    if plan.base_wait is None:  # nothing was reduced before
        plan = replace(plan, base_wait=situation.least_wait)
    beside = (plan.base_wait or 0.0) + situation.aside
    reason = explanations.move(step.cause, case, step.short, beside)
    if step.cause is Cause.UNITS_MOVED:
        return _moved(plan, step.ownership, case, reason, beside)
    kept = replace(plan, ownership=step.ownership, cause=step.cause, reason=reason)
    return replace(kept, decision_id=plan.decision_id + 1, explained_id=plan.decision_id + 1)


def _proposed(plan: WorkPlan, step: MoveStep) -> WorkPlan:
    """Return the plan that asks the ranks whether they have memory for a new proposal, or that only counts on."""
    if step.proposal is None:
        return replace(plan, ownership=step.ownership)
    decision_id = plan.decision_id + 1
    asked = replace(step.ownership, proposal=replace(step.proposal, decision_id=decision_id))
    return replace(plan, decision_id=decision_id, ownership=asked)


def _moved(plan: WorkPlan, ownership: Ownership, case: MoveCase, reason: str, beside: float) -> WorkPlan:
    """Return the plan after units have moved: all ranks do all of their work again.

    beside: seconds of an iteration that the case leaves out.
    """
    return WorkPlan(
        plan.decision_id + 1,
        plan.settings,
        alternations=plan.alternations,
        base_wait=plan.base_wait,
        ownership=ownership,
        predicted_seconds=case.then_seconds + beside,
        untouched_seconds=case.now_seconds + beside,
        explained_id=plan.decision_id + 1,
        cause=Cause.UNITS_MOVED,
        reason=reason,
    )


def _without_shares(plan: WorkPlan, ownership: Ownership) -> WorkPlan:
    """Return the plan that reports once that no shares keep the limits."""
    if plan.cause is Cause.NO_SHARES or plan.settings is None:
        return replace(plan, ownership=ownership) if ownership is not plan.ownership else plan
    kept = replace(plan, ownership=ownership, cause=Cause.NO_SHARES, reason=explanations.no_shares(plan.settings))
    return replace(kept, decision_id=plan.decision_id + 1, explained_id=plan.decision_id + 1)
