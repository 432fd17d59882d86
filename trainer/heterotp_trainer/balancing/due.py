"""What is to be decided anew at a boundary: only a change of policy, stragglers, times or prices makes a new plan."""

from collections.abc import Sequence
from dataclasses import replace

from heterotp_api.policy import BalancingSettings

from heterotp_trainer.balancing.detection import Detection
from heterotp_trainer.balancing.explanations import not_measured
from heterotp_trainer.balancing.history import History, Observation
from heterotp_trainer.balancing.prediction import transfer_seconds
from heterotp_trainer.balancing.situation import Due, Situation
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.work_plan import Cause, WorkPlan

MOST_REPRICINGS = 2  # for one set of stragglers: or two plans, each slower than predicted, would alternate for ever


def situation_of(
    history: History,
    policy: BalancingSettings,
    plan: WorkPlan,
    costs: Costs,
    detection: Detection,
    answers: Sequence[int],
) -> Situation:
    """Return what is due, with the plan in force: a new and empty one where the policy is new."""
    known, fresh = plan.stragglers, plan.settings != policy
    plan = _begun(plan, policy) if fresh else plan
    pending = plan.ownership.proposal is not None or detection.drift is not None
    units = Due.UNITS if policy.moves_units and pending else Due.NOTHING
    found = Situation(history, policy, costs, plan, detection, answers, detection.seen, units)
    if policy.fixed is not None:
        return _changed(found, Due.FIXED_RATIO, base_wait=_least_wait(plan, found.seen)) if fresh else found
    if found.seen is None:
        return _in_a_larger_window(found, known) if fresh else found
    if _other_stragglers(plan, detection.stragglers, found.seen, policy):
        base_wait = _least_wait(plan, found.seen)
        return _changed(found, Due.REDUCTIONS, base_wait=base_wait, stragglers=detection.stragglers)
    if _other_prices(plan, policy, costs):  # the speeds stay those that the plan was made on
        return replace(found, due=units | Due.PRICES, seen=found.seen.with_full(plan.basis))
    return found


def _changed(found: Situation, due: Due, **fields: object) -> Situation:
    return replace(found, due=found.due | due, plan=replace(found.plan, **fields))  # type: ignore[arg-type]


def _begun(plan: WorkPlan, policy: BalancingSettings) -> WorkPlan:
    """Return the first plan under another policy: no reductions, and no proposal where units may not move."""
    ownership = plan.ownership if policy.moves_units else replace(plan.ownership, proposal=None)
    return WorkPlan(
        plan.decision_id + 1,
        policy,
        base_wait=plan.base_wait,
        ownership=ownership,
        cause=Cause.NOT_MEASURED,
        reason=not_measured(policy),
    )


def _in_a_larger_window(found: Situation, known: tuple[int, ...]) -> Situation:
    """Return the situation until the window of a new policy is full: the known stragglers, by what is measured."""
    latest = found.history.latest()
    if not known or latest is None:
        return found
    return replace(_changed(found, Due.REDUCTIONS, stragglers=known), seen=latest)


def _least_wait(plan: WorkPlan, seen: Observation | None) -> float | None:
    """Return the least seconds that an iteration waits; while columns migrate, waits contain their transfers."""
    return plan.base_wait if seen is None or seen.migrating else float(min(seen.wait))


def _other_stragglers(
    plan: WorkPlan, stragglers: tuple[int, ...], seen: Observation, policy: BalancingSettings
) -> bool:
    """Return whether the stragglers are other ones, or the time of one changed by more than replanThreshold."""
    if stragglers != plan.stragglers:
        return True
    if not stragglers or not plan.basis:
        return False
    return any(_change(float(seen.full[rank]), plan.basis[rank]) > policy.replan_threshold for rank in stragglers)


def _change(now: float, before: float) -> float:
    return abs(now - before) / before if before > 0 else float(now > 0)


def _other_prices(plan: WorkPlan, policy: BalancingSettings, costs: Costs) -> bool:
    """Return whether live samples changed the seconds of transfers by more than replanThreshold of the iteration.

    The iteration is the measure, because noise alone changes the transfers of a few columns by more.
    """
    if not plan.migrates or plan.link is None or plan.link == costs.link or plan.repriced >= MOST_REPRICINGS:
        return False
    now, before = (
        transfer_seconds(replace(costs, link=link), plan.reductions_by_rank, len(plan.receivers), plan.primitive)
        for link in (costs.link, plan.link)
    )
    return abs(now - before) > policy.replan_threshold * (plan.predicted_seconds or 0.0)
