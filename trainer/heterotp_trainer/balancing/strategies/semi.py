"""SEMI: migrate as much as time allows, prune the rest (docs/algorithms.md, SEMI; the paper's eq. 2 and 3)."""

import bisect
import functools
from collections.abc import Callable, Collection, Iterable, Sequence

from heterotp_api.strategy_blocks import Semi

from heterotp_trainer.balancing.history import Observation
from heterotp_trainer.balancing.migration import Priced, slowest_first
from heterotp_trainer.balancing.paper_equations import balanced_beta, migrating
from heterotp_trainer.balancing.prediction import pruned_share
from heterotp_trainer.balancing.semi_candidates import SemiProblem
from heterotp_trainer.balancing.situation import Candidate, Reduced, Situation
from heterotp_trainer.plans.costs import Costs

BETAS = [step / 32 for step in range(33)]  # about one step per block of columns


def semi(situation: Situation) -> Candidate:
    """Return what stragglers prune and migrate (docs/algorithms.md, SEMI)."""
    if situation.reducible is None:
        return Candidate()
    settings, costs, limit = situation.policy.semi or Semi(), situation.costs, situation.policy.pruned_share_limit
    found = split(costs, situation.reducible, situation.stragglers, settings, limit, situation.base_wait)
    mandated = settings.migrating_stragglers is not None
    return Candidate(Reduced(found.reductions, found.receivers, settings.mig.primitive, mandated))


def split(
    costs: Costs, seen: Observation, stragglers: Collection[int], settings: Semi, limit: float, base_wait: float
) -> Priced:
    """Return the candidate that deletes least among those within timeTolerance of the fastest, at most `limit`."""
    order = slowest_first(seen, stragglers)
    problem = SemiProblem(costs, seen, order, settings, base_wait)
    if settings.migrating_stragglers is not None:
        least = min(settings.migrating_stragglers, len(order))
        return _first_allowed(costs, (problem.split(x) for x in range(least, len(order) + 1)), limit)
    if len(order) == 1 and settings.beta_rule != "leastDeletion":
        printed = settings.beta_rule == "equation2"
        balanced = balanced_beta(problem, printed=printed)
        betas = [balanced, *(beta for beta in BETAS if beta > balanced)]
        return _first_allowed(costs, (problem.with_beta(beta, alike=printed) for beta in betas), limit)
    if len(order) > 1 and settings.split_rule == "equation3":
        least = migrating(problem)
        return _first_allowed(costs, (problem.to_all_others(x) for x in range(least, len(order) + 1)), limit)
    bounded = [problem.bounded(limit)] if limit < 1 else []
    plans = [problem.with_beta(beta) for beta in BETAS] if len(order) == 1 else of_several(problem, limit, bounded)
    return least_deletion(costs, [*plans, *bounded], settings.time_tolerance, limit)


def _first_allowed(costs: Costs, plans: Iterable[Priced], limit: float) -> Priced:
    """Return the first candidate that deletes at most `limit`, else the last; each deletes less than the one before."""
    plan = None
    for plan in plans:
        if pruned_share(costs, plan.reductions) <= limit:
            break
    assert plan is not None
    return plan


def of_several(problem: SemiProblem, limit: float, others: Sequence[Priced]) -> list[Priced]:
    """Return candidates that include the best one: per kind the fastest allowed one, and the largest x in time.

    Kinds: the x slowest migrate all their columns, or those of row-parallel linears only. As x grows, seconds never
    fall and deletion never grows: the fastest allowed candidate has the least allowed x, and bisection finds the
    largest x whose seconds are within timeTolerance of it.
    """
    most = len(problem.order)
    every, rows = (
        functools.cache(functools.partial(problem.split, rows_only=rows_only)) for rows_only in (False, True)
    )
    first = [(plan, _least_allowed(problem.costs, plan, most, limit)) for plan in (every, rows)]
    fastest = [plan(x) for plan, x in first if x or plan is every]  # at 0 they are the same
    allowed = [plan for plan in [*others, *fastest] if pruned_share(problem.costs, plan.reductions) <= limit]
    in_time = (1 + problem.settings.time_tolerance) * min(plan.seconds for plan in allowed or fastest)
    x = _most(every, first[0][1], most, in_time)
    y = _most(rows, max(first[1][1], x), most, in_time)  # with fewer senders than x it would delete more
    return [*fastest, every(x), rows(y)]


def _least_allowed(costs: Costs, plan: Callable[[int], Priced], most: int, limit: float) -> int:
    """Return the least x whose candidate deletes at most `limit`, the largest x where none does."""
    if limit >= 1:
        return 0
    return bisect.bisect_left(range(most), True, key=lambda x: pruned_share(costs, plan(x).reductions) <= limit)


def _most(plan: Callable[[int], Priced], least: int, most: int, seconds: float) -> int:
    """Return the largest x, from `least` on, whose candidate takes at most this many seconds."""
    found = bisect.bisect_right(range(least, most + 1), seconds, key=lambda x: plan(x).seconds)
    return least + max(0, found - 1)


def least_deletion(costs: Costs, plans: Sequence[Priced], tolerance: float, limit: float) -> Priced:
    """Return the candidate that deletes least of those within tolerance of the fastest; of equal ones the faster.

    `limit` is a hard bound of the deleted share: candidates above it count only where there are no others.
    """
    allowed = [plan for plan in plans if pruned_share(costs, plan.reductions) <= limit] or [
        min(plans, key=lambda plan: pruned_share(costs, plan.reductions))
    ]
    fastest = min(plan.seconds for plan in allowed)
    near = [plan for plan in allowed if plan.seconds <= (1 + tolerance) * fastest]
    return min(near, key=lambda plan: (pruned_share(costs, plan.reductions), plan.seconds))
