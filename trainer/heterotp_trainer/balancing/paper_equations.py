"""The paper's equations 2 and 3: which part of the stragglers' columns migrates (its section 4.2).

Equation 1 is in pruning.py. What is printed and what is improved here: docs/algorithms.md, Where we differ.
"""

import numpy as np

from heterotp_trainer.balancing.migration import Priced
from heterotp_trainer.balancing.prediction import received_seconds, shares, slower, transfer_seconds
from heterotp_trainer.balancing.pruning import timed
from heterotp_trainer.balancing.semi_candidates import SemiProblem
from heterotp_trainer.plans.arrays import added, total
from heterotp_trainer.plans.work_reduction import WorkReductions

BISECTIONS = 40


def balanced_beta(problem: SemiProblem, *, printed: bool = False) -> float:
    """Return the paper's beta: Omega1 + Omega2(L g (1-b)) = Phi1(L g b) + Phi2(L g b / (e-1)) (eq. 2).

    By bisection, clamped to [0, 1]: the root need not exist, for Phi1 has a fixed part. printed: as it stands there;
    else the sender's packing is a cost of migration, too, and row-parallel linears migrate first.
    """

    def surplus(beta: float) -> float:
        plan = problem.with_beta(beta, alike=printed)
        return _migration_cost(problem, plan, printed) - _resizing_cost(problem, plan)

    least = problem.costs.allocation + problem.costs.extraction.fixed  # however little is pruned
    if surplus(1.0) <= least:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if surplus(middle) <= 0 else (low, middle)
    return low


def _resizing_cost(problem: SemiProblem, plan: Priced) -> float:
    share = _share(problem, plan, "pruned")
    return problem.costs.allocation + problem.costs.extraction.at(share) if share else 0.0


def _share(problem: SemiProblem, plan: Priced, what: str) -> float:
    columns = getattr(WorkReductions.of(plan.reductions, len(problem.costs.classes), problem.costs.ranks), what)
    return float(shares(problem.costs, columns)[problem.order[0]])


def _migration_cost(problem: SemiProblem, plan: Priced, printed: bool) -> float:
    """Return Phi1 + the longest Phi2 over the receivers, and the packing unless `printed`, seconds an iteration."""
    costs = problem.costs
    more = received_seconds(costs, plan.reductions, plan.receivers) * slower(costs, problem.seen)
    packing = 0.0 if printed else costs.extraction.at(_share(problem, plan, "migrated"))
    moved = transfer_seconds(costs, plan.reductions, len(plan.receivers), problem.settings.mig.primitive)
    return packing + moved + float(more.max())


def migrating(problem: SemiProblem) -> int:
    """Return how many of the slowest ranks migrate: x right before the first f(x) < 0 (eq. 3 and Algorithm 2)."""
    for x in range(1, len(problem.order) + 1):
        if gain(problem, x) < 0:
            return x - 1
    return len(problem.order)


def gain(problem: SemiProblem, x: int) -> float:
    """Return f(x) = T_x - T_min - Phi1(Gamma(x)) - max over the others y of Gamma(x) / (e - x) T_y / L_y, seconds.

    Gamma(x) = sum over the x slowest of L_k (T_k - T_min) / T_k, as printed: of whole times, not of products alone.
    """
    costs, totals = problem.costs, timed(problem.seen, problem.settings.zero).total
    work = added(costs.tables.operations * costs.tables.columns, costs.ranks)  # L of each rank
    senders = list(problem.order[:x])
    others = [rank for rank in range(costs.ranks) if rank not in senders and work[rank] > 0]
    if not others:
        return float("-inf")
    least, taken = totals.min(), np.zeros(costs.ranks)
    taken[senders] = (totals[senders] - least) / totals[senders]
    moved = WorkReductions(np.zeros_like(costs.tables.columns), costs.tables.columns * taken)
    sending = transfer_seconds(costs, moved, len(others), problem.settings.mig.primitive)
    computing = total(work * taken) / len(others) * max(totals[y] / work[y] for y in others)
    return float(totals[senders[-1]] - least - sending - computing)
