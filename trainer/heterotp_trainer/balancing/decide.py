"""The decision of every boundary: from what was measured, the policy and the plan in force to the next plan.

Pure and the same on all ranks: whatever differs from rank to rank (clocks, gradients, which column matters
least) stays out of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from heterotp_api.policy import BalancingSettings, Mig, Semi, Zero

from heterotp_trainer.balancing.detection import slowdowns
from heterotp_trainer.balancing.explanations import NAMED, ranks_named
from heterotp_trainer.balancing.history import History, Observation
from heterotp_trainer.balancing.prediction import iteration_seconds, pruned_share, shares, transfer_seconds
from heterotp_trainer.balancing.strategies.auto import moves_units, owned, reshard_problem, stragglers
from heterotp_trainer.balancing.strategies.mig import migrate, receivers_of
from heterotp_trainer.balancing.strategies.reshard import ReshardProblem
from heterotp_trainer.balancing.strategies.semi import semi
from heterotp_trainer.balancing.strategies.zero import fixed, prune, reference_seconds
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.work_plan import WorkPlan
from heterotp_trainer.plans.work_reduction import Reductions, WorkReductions

MOST_REPRICINGS = 2  # of one set of stragglers: two plans, each dear when it is tried, must not take turns for ever


def decide(
    history: History, policy: BalancingSettings, plan: WorkPlan, costs: Costs, answers: Sequence[int] = ()
) -> WorkPlan:
    """Return the plan from the next iteration on: the one in force unless there is reason for another.

    First what each rank leaves out or gives away of its own, then who owns what; answers: see auto.owned.
    """
    problem = reshard_problem(history, policy, plan, costs)
    return owned(history, policy, _resized(history, policy, plan, costs, problem), problem, answers)


def _resized(
    history: History, policy: BalancingSettings, plan: WorkPlan, costs: Costs, problem: ReshardProblem | None
) -> WorkPlan:
    ratio = _fixed_ratio(policy)
    seen, known = history.median(), plan.stragglers  # who is slow, no policy changes
    if plan.settings != policy:
        idle, kept = _idle(policy), plan.ownership
        plan = WorkPlan(plan.decision_id + 1, policy, base_wait=plan.base_wait, ownership=kept, reason=idle)
        if ratio is not None:
            return _fixed_plan(seen, policy, plan, costs, *ratio)
        if seen is None and known and (latest := history.latest()) is not None:  # a larger window is not full yet
            return _next(latest, policy, replace(plan, stragglers=known), costs)
    if seen is None or ratio is not None:
        return plan
    flagged = stragglers(history, policy, known, problem, plan.ownership)
    if _due(plan, flagged, seen, policy):
        return _next(seen, policy, replace(plan, stragglers=flagged, base_wait=_least_wait(seen, plan)), costs)
    return _repriced(seen, policy, plan, costs) if _other_prices(plan, policy, costs) else plan


def lossless(policy: BalancingSettings) -> bool:
    """Return whether a policy moves units and allows no loss meanwhile: nothing is taken from anybody."""
    return moves_units(policy) and policy.pruned_share_limit == 0


def _least_wait(seen: Observation | None, plan: WorkPlan) -> float | None:
    """Return what an iteration waits at least, without the transfers of a migration, which are waiting, too."""
    return plan.base_wait if seen is None or seen.migrating else float(min(seen.wait))


def _due(plan: WorkPlan, flagged: Sequence[int], seen: Observation, policy: BalancingSettings) -> bool:
    """Return whether to plan again: other stragglers, or one that changed by more than replanThreshold."""
    if tuple(flagged) != plan.stragglers:
        return True
    if not flagged or not plan.basis:
        return False
    return any(_moved(float(seen.full[rank]), plan.basis[rank]) > policy.replan_threshold for rank in flagged)


def _other_prices(plan: WorkPlan, policy: BalancingSettings, costs: Costs) -> bool:
    """Return whether live samples moved the price of transfers by more than replanThreshold of the iteration.

    Not of the transfers: those of a few columns would change by noise alone.
    """
    if not plan.migrates or plan.link is None or plan.link == costs.link or plan.repriced >= MOST_REPRICINGS:
        return False
    now, before = (
        transfer_seconds(replace(costs, link=link), plan.reductions_by_rank, len(plan.receivers), plan.primitive)
        for link in (costs.link, plan.link)
    )
    return abs(now - before) > policy.replan_threshold * (plan.predicted_seconds or 0.0)


def _repriced(seen: Observation, policy: BalancingSettings, plan: WorkPlan, costs: Costs) -> WorkPlan:
    """Return the plan at the new prices; the same work keeps its number, only its prediction is corrected.

    The ranks' speeds are those that it was made on: only prices changed.
    """
    made = replace(_next(seen.with_full(plan.basis), policy, plan, costs), repriced=plan.repriced + 1)
    return replace(made, decision_id=plan.decision_id) if made.work == plan.work else made


def _moved(now: float, before: float) -> float:
    return abs(now - before) / before if before > 0 else float(now > 0)


def _next(seen: Observation, policy: BalancingSettings, plan: WorkPlan, costs: Costs) -> WorkPlan:
    """Return the plan for these stragglers."""
    fresh = WorkPlan(
        decision_id=plan.decision_id + 1,
        settings=policy,
        stragglers=plan.stragglers,
        basis=tuple(seen.full.tolist()),
        link=costs.link,
        base_wait=plan.base_wait,
        ownership=plan.ownership,
    )
    strategy = None if lossless(policy) else STRATEGIES.get(policy.strategy)
    wait = plan.base_wait or 0.0
    untouched = iteration_seconds(costs, seen, {}, base_wait=wait)
    if strategy is None or not plan.stragglers:
        words = _nobody(seen, plan.stragglers, policy)
        return replace(fresh, predicted_seconds=untouched, reason=words)
    made = strategy(seen, policy, fresh, costs)
    reduced = WorkReductions.of(made.reductions_by_rank, len(costs.classes), costs.ranks)
    predicted = iteration_seconds(costs, seen, reduced, made.receivers, made.primitive, wait)
    if not reduced or (predicted >= untouched and not _asked_for(policy)):
        words = f"{_slow(seen, plan.stragglers)}; {policy.strategy} finds no plan that is faster than {untouched:.3g} s"
        return replace(fresh, predicted_seconds=untouched, reason=f"{words} an iteration")
    above = predicted - wait - float(min(seen.total))
    words = _done(seen, made, reduced, costs) + f"; {untouched:.3g} s -> {predicted:.3g} s an iteration predicted"
    return replace(made, predicted_seconds=predicted, reason=words + _left(above, seen))


def _asked_for(policy: BalancingSettings) -> bool:
    """Return whether the policy says itself who migrates, for a sweep, whatever it costs."""
    return policy.semi is not None and policy.semi.migrating_stragglers is not None


def _zero(seen: Observation, policy: BalancingSettings, plan: WorkPlan, costs: Costs) -> WorkPlan:
    settings = policy.zero or Zero()
    reference = reference_seconds(costs, seen, settings.criterion)
    reductions = prune(costs, seen, plan.stragglers, settings, reference, policy.pruned_share_limit)
    return replace(plan, reductions=_listed(reductions))


def _mig(seen: Observation, policy: BalancingSettings, plan: WorkPlan, costs: Costs) -> WorkPlan:
    settings = policy.mig or Mig()
    found = migrate(costs, seen, plan.stragglers, settings, plan.base_wait or 0.0)
    if found is None:
        return plan
    return replace(plan, reductions=_listed(found.reductions), receivers=found.receivers, primitive=settings.primitive)


def _semi(seen: Observation, policy: BalancingSettings, plan: WorkPlan, costs: Costs) -> WorkPlan:
    settings = policy.semi or Semi()
    found = semi(costs, seen, plan.stragglers, settings, policy.pruned_share_limit, plan.base_wait or 0.0)
    receivers = found.receivers
    return replace(plan, reductions=_listed(found.reductions), receivers=receivers, primitive=settings.mig.primitive)


Strategy = Callable[[Observation, BalancingSettings, WorkPlan, Costs], WorkPlan]
STRATEGIES: dict[str, Strategy] = {"ZERO": _zero, "MIG": _mig, "SEMI": _semi, "AUTO": _zero, "RESHARD": _zero}


def _listed(reductions: Reductions) -> tuple[tuple[int, tuple], ...]:  # type: ignore[type-arg]
    return tuple(sorted(reductions.items()))


def _fixed_ratio(policy: BalancingSettings) -> tuple[float, list[int], str] | None:
    """Return ratio, ranks and what is taken, where the policy gives them itself."""
    for block, what in ((policy.zero, "pruned"), (policy.mig, "migrated")):
        if block is not None and block.fixed_ratio is not None:
            return block.fixed_ratio, list(block.ranks or ()), what
    return None


def _fixed_plan(
    seen: Observation | None,
    policy: BalancingSettings,
    plan: WorkPlan,
    costs: Costs,
    ratio: float,
    ranks: list[int],
    what: str,
) -> WorkPlan:
    block = policy.zero if what == "pruned" else policy.mig
    assert block is not None
    reductions = fixed(costs, ratio, ranks, block.grain, what)
    ones = [1.0] * costs.ranks
    even = Observation.of(ones, ones, ones, ones)
    receivers = receivers_of(costs, seen or even, ranks) if what == "migrated" else ()
    primitive = policy.mig.primitive if policy.mig is not None else "broadcastReduce"
    words = f"{policy.strategy}: {ratio:.0%} of the columns of {ranks_named(ranks)} {what}, as the policy fixes it"
    least = _least_wait(seen, plan)
    made = replace(plan, reductions=_listed(reductions), receivers=receivers, primitive=primitive, base_wait=least)
    wait = _least_wait(seen, plan) or 0.0
    price = iteration_seconds(costs, seen, reductions, receivers, primitive, wait) if seen is not None else None
    return replace(made, predicted_seconds=price, reason=words)


# -- words ------------------------------------------------------------------------------------------------


def _slow(seen: Observation, ranks: Sequence[int]) -> str:
    chi = slowdowns(seen.full)
    most = max((float(chi[rank]) for rank in ranks), default=1.0)
    return f"{ranks_named(ranks)} {'are up to' if len(ranks) > 1 else 'is'} {most:.1f}x slower"


def _idle(policy: BalancingSettings) -> str:
    return f"{policy.strategy}: no rank is known to be slow"


def _nobody(seen: Observation, flagged: Sequence[int], policy: BalancingSettings) -> str:
    if not flagged:
        return f"{policy.strategy}: no rank is slower than the others"
    if moves_units(policy):
        return f"{_slow(seen, flagged)}; {policy.strategy} moves units once the time lost has reached what a move costs"
    return f"{_slow(seen, flagged)}; strategy {policy.strategy} leaves the work as it is"


def _done(seen: Observation, plan: WorkPlan, reduced: WorkReductions, costs: Costs) -> str:
    done = []
    gone = {"pruned": shares(costs, reduced.pruned), "migrated": shares(costs, reduced.migrated)}
    for rank, _ in plan.reductions[:NAMED]:
        parts = [(float(each[rank]), what) for what, each in gone.items()]
        done.append(f"rank {rank} " + ", ".join(f"{share:.0%} {what}" for share, what in parts if share))
    deleted = pruned_share(costs, reduced)
    lossy = f", {deleted:.1%} of all work deleted" if deleted else ", lossless"
    return f"{_slow(seen, plan.stragglers)}: {'; '.join(done)}{lossy}"


def _left(above: float, seen: Observation) -> str:
    """Return what clipping left over, where it is more than a tenth of the fastest rank's time."""
    return f" ({above:.3g} s above the fastest rank)" if above > 0.1 * float(min(seen.total)) else ""
