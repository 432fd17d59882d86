"""What is to be decided anew at a boundary: only a change of policy, stragglers, times or prices makes a new plan."""

from collections.abc import Sequence
from dataclasses import replace

from heterotp_api.policy import BalancingSettings

from heterotp_trainer.balancing import damping
from heterotp_trainer.balancing.detection import Detection
from heterotp_trainer.balancing.history import History, Observation
from heterotp_trainer.balancing.prediction import transfer_seconds
from heterotp_trainer.balancing.situation import Situation, WorkDue
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.work_plan import WorkPlan

MOST_REPRICINGS = 2  # for one set of stragglers: or two plans, each slower than predicted, would alternate for ever


def situation_of(
    history: History,
    policy: BalancingSettings,
    plan: WorkPlan,
    costs: Costs,
    detection: Detection,
    answers: Sequence[int],
) -> Situation:
    """Return what is due at this boundary; plan: the one in force, possibly under another policy."""
    new_policy = plan.settings != policy
    if new_policy:  # its first reaction never waits
        plan = replace(plan, alternations=(), ownership=replace(plan.ownership, alternations=()))
    units = policy.moves_units and (detection.drift is not None or plan.ownership.proposal is not None)
    stragglers = () if new_policy else plan.stragglers
    found = Situation(
        history, policy, costs, plan, detection, answers, detection.seen, new_policy, units, stragglers, plan.base_wait
    )
    return _with_work_due(found, detection.stragglers)


def _with_work_due(found: Situation, detected: tuple[int, ...]) -> Situation:
    """Return the situation with what is due of the work of ranks; detected: the stragglers."""
    if found.policy.fixed is not None:
        return _due(found, WorkDue.FIXED_RATIO, known_wait=found.least_wait) if found.new_policy else found
    seen = found.seen
    if seen is None:
        return _in_a_larger_window(found) if found.new_policy else found
    made, found = _damped(found, _changes(found, detected, seen))
    if made:
        stragglers = tuple(rank for rank in detected if rank in made or rank in found.stragglers)
        return _due(found, WorkDue.REDUCTIONS, known_wait=found.least_wait, stragglers=stragglers)
    if not found.new_policy and _other_prices(found.plan, found.policy, found.costs):
        return _due(found, WorkDue.PRICES, seen=seen.with_full(found.plan.basis))  # the speeds planned on
    return found


def _due(found: Situation, work: WorkDue, **fields: object) -> Situation:
    return replace(found, work=work, **fields)  # type: ignore[arg-type]


def _in_a_larger_window(found: Situation) -> Situation:
    """Return the situation until the window of a new policy is full: the known stragglers, by what is measured."""
    latest = found.history.latest()
    if not found.plan.stragglers or latest is None:
        return found
    return _due(found, WorkDue.REDUCTIONS, stragglers=found.plan.stragglers, seen=latest)


def _changes(found: Situation, detected: tuple[int, ...], seen: Observation) -> dict[int, bool]:
    """Return the ranks whose work is to change, True where it is reduced further.

    They became stragglers or recovered, or the time of a straggler changed by more than replanThreshold.
    """
    changes = {rank: True for rank in detected if rank not in found.stragglers}
    changes |= {rank: False for rank in found.stragglers if rank not in detected}
    basis, threshold = found.plan.basis, found.policy.replan_threshold
    for rank in detected if basis else ():
        if rank in found.stragglers and _change(float(seen.full[rank]), basis[rank]) > threshold:
            changes[rank] = float(seen.full[rank]) > basis[rank]
    return changes


def _damped(found: Situation, changes: dict[int, bool]) -> tuple[dict[int, bool], Situation]:
    """Return the changes to make now, and the situation with what is kept of alternating ranks.

    Only further reductions wait: work that a rank can do again is never deleted or migrated for longer.
    """
    now, window = found.history.count, found.policy.window
    records = damping.watched(found.plan.alternations, changes, now, window)
    held = damping.waiting(records, now, window)
    made = {rank: slower for rank, slower in changes.items() if not (slower and rank in held)}
    records = damping.changed(records, made, now, window)
    if records == found.plan.alternations:
        return made, found
    return made, replace(found, plan=replace(found.plan, alternations=records))


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
