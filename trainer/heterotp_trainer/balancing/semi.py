"""SEMI: migrate what time allows, prune the rest (algorithms, section 4; the paper's eq. 2 and 3)."""

import math
from collections.abc import Collection, Iterable, Sequence

import numpy as np
from heterotp_api.policy import Semi

from heterotp_trainer.balancing.arrays import Array, Relieved
from heterotp_trainer.balancing.history import Observation
from heterotp_trainer.balancing.migration import MANY, Priced, receivers_of, slowest_first
from heterotp_trainer.balancing.predict import (
    executed_seconds,
    iteration_seconds,
    pruned_share,
    received_columns,
    shares,
    transfer_seconds,
)
from heterotp_trainer.balancing.work import Costs, blocks, grain_for
from heterotp_trainer.balancing.zero import prune, reference_seconds

BETAS = [step / 32 for step in range(33)]  # a straggler has hardly more blocks of columns
BISECTIONS = 40
MOST_SPLITS, FEW_SPLITS = 33, 3  # of very many stragglers not every x is priced, but as many, evenly spread


def semi(
    costs: Costs, seen: Observation, stragglers: Collection[int], settings: Semi, limit: float, base_wait: float
) -> Priced:
    """Return the plan that deletes least among those within timeTolerance of the fastest, at most `limit` deleted."""
    order = slowest_first(seen, stragglers)
    if settings.migrating_stragglers is not None:
        least = min(settings.migrating_stragglers, len(order))
        splits = (split_at(costs, seen, order, x, settings, base_wait) for x in range(least, len(order) + 1))
        return _first_allowed(costs, splits, limit)
    if len(order) == 1 and settings.beta_rule == "costBalance":
        least_beta = balanced_beta(costs, seen, order[0], settings)
        betas = [least_beta, *(b for b in BETAS if b > least_beta)]
        return _first_allowed(
            costs, (with_beta(costs, seen, order[0], beta, settings, base_wait) for beta in betas), limit
        )
    plans = candidates(costs, seen, order, settings, base_wait)
    if limit < 1:  # as far down as the bound allows, with nothing that migrates
        least_seconds = reference_seconds(costs, seen, "minimum")
        bounded = prune(costs, seen, order, settings.zero, least_seconds, limit)
        plans.append(_priced(costs, seen, bounded, receivers_of(costs, seen, order), settings, base_wait))
    return least_deletion(costs, plans, settings.time_tolerance, limit)


def _first_allowed(costs: Costs, plans: Iterable[Priced], limit: float) -> Priced:
    """Return the first plan that deletes no more than allowed; they delete less and less, the last one least."""
    plan = None
    for plan in plans:
        if pruned_share(costs, plan.reliefs) <= limit:
            break
    assert plan is not None
    return plan


def candidates(costs: Costs, seen: Observation, order: Sequence[int], settings: Semi, base_wait: float) -> list[Priced]:
    """Return the plans to choose from: every beta of one straggler; every x of several, whole or rows only."""
    if len(order) == 1:
        return [with_beta(costs, seen, order[0], beta, settings, base_wait) for beta in BETAS]
    count = min(len(order) + 1, MOST_SPLITS if len(order) <= MANY else FEW_SPLITS)
    splits = sorted({len(order) * step // (count - 1) for step in range(count)})
    wanted, receivers = _down_to_minimum(costs, seen, order, settings), receivers_of(costs, seen, order)
    return [
        _split(costs, seen, wanted, order[:x], receivers, settings, base_wait, rows_only)
        for x in splits
        for rows_only in (False, True)
        if x or not rows_only
    ]


def least_deletion(costs: Costs, plans: Sequence[Priced], tolerance: float, limit: float) -> Priced:
    """Return, of the plans within tolerance of the fastest, the one that deletes least; of equals the faster.

    `limit` is a hard bound of the deleted share: plans above it count for nothing, unless there are no others.
    """
    allowed = [plan for plan in plans if pruned_share(costs, plan.reliefs) <= limit] or [
        min(plans, key=lambda plan: pruned_share(costs, plan.reliefs))
    ]
    fastest = min(plan.seconds for plan in allowed)
    near = [plan for plan in allowed if plan.seconds <= (1 + tolerance) * fastest]
    return min(near, key=lambda plan: (pruned_share(costs, plan.reliefs), plan.seconds))


def split_at(costs: Costs, seen: Observation, order: Sequence[int], x: int, settings: Semi, base_wait: float) -> Priced:
    """Return the plan in which the x slowest migrate and the others prune, all down to T_min, and its price (eq. 3)."""
    wanted, receivers = _down_to_minimum(costs, seen, order, settings), receivers_of(costs, seen, order)
    return _split(costs, seen, wanted, order[:x], receivers, settings, base_wait, False)


def _split(
    costs: Costs,
    seen: Observation,
    wanted: Relieved,
    migrating: Sequence[int],
    receivers: tuple[tuple[int, float], ...],
    settings: Semi,
    base_wait: float,
    rows_only: bool,
) -> Priced:
    """See split_at; rows_only: they migrate columns of row-parallel linears alone and prune the others."""
    senders = np.zeros(costs.ranks, dtype=bool)
    senders[list(migrating)] = True
    moves = senders & (costs.tables.rows | (not rows_only))
    reliefs = Relieved(np.where(moves, 0.0, wanted.pruned), np.where(moves, wanted.pruned, 0.0))
    return _priced(costs, seen, reliefs, receivers, settings, base_wait)


def with_beta(costs: Costs, seen: Observation, rank: int, beta: float, settings: Semi, base_wait: float) -> Priced:
    """Return the plan in which one straggler migrates beta of the work it gives up and prunes the rest.

    Row-parallel linears migrate first: of those only columns travel, while a column-parallel linear sends its whole
    dY and gets back its whole Y, however few columns migrate.
    """
    wanted = _down_to_minimum(costs, seen, [rank], settings).pruned
    moved = np.zeros_like(wanted)
    for k, share in enumerate(_by_parallel(costs, wanted[:, rank] * costs.tables.operations[:, rank], beta)):
        # of both grains, so that what is left to prune is whole blocks again
        grains = (settings.zero.grain, settings.mig.grain)
        step = math.lcm(*(grain_for(g, costs.grains[rank], costs.classes[k].columns[rank]) for g in grains))
        moved[k, rank] = wanted[k, rank] if share >= 1 else blocks(float(wanted[k, rank]) * share, step)
    receivers = receivers_of(costs, seen, [rank])
    return _priced(costs, seen, Relieved(wanted - moved, moved), receivers, settings, base_wait)


def _by_parallel(costs: Costs, work: Array, beta: float) -> list[float]:
    """Return per class the share of its columns that migrates, so that in all beta of the work [K] does."""
    rows = math.fsum(float(w) for w, linears in zip(work, costs.classes, strict=True) if linears.parallel == "row")
    columns = math.fsum(work.tolist()) - rows
    moving = beta * (rows + columns)
    row_share = min(1.0, moving / rows) if rows else 0.0
    column_share = max(0.0, moving - rows) / columns if columns else 0.0
    if beta >= 1:
        row_share = column_share = 1.0
    return [row_share if linears.parallel == "row" else column_share for linears in costs.classes]


def _down_to_minimum(costs: Costs, seen: Observation, ranks: Sequence[int], settings: Semi) -> Relieved:
    return prune(costs, seen, ranks, settings.zero, reference_seconds(costs, seen, "minimum"), 1.0)


def _priced(
    costs: Costs,
    seen: Observation,
    reliefs: Relieved,
    receivers: tuple[tuple[int, float], ...],
    settings: Semi,
    base_wait: float,
) -> Priced:
    if not receivers:  # nobody is left to take anything: all prune
        reliefs = Relieved(reliefs.pruned + reliefs.migrated, np.zeros_like(reliefs.migrated))
    primitive = settings.mig.primitive
    return Priced(reliefs, receivers, iteration_seconds(costs, seen, reliefs, receivers, primitive, base_wait))


def balanced_beta(costs: Costs, seen: Observation, rank: int, settings: Semi) -> float:
    """Return the paper's beta: Omega1 + Omega2(L g (1-b)) = Phi1(L g b) + Phi2(L g b / (e-1)) (eq. 2).

    By bisection, clamped to [0, 1]: the root need not exist, for Phi1 has a fixed part.
    """

    def surplus(beta: float) -> float:
        plan = with_beta(costs, seen, rank, beta, settings, 0.0)
        return _migration_cost(costs, seen, rank, plan, settings) - _resizing_cost(costs, rank, plan)

    least = costs.allocation + costs.extraction.fixed  # however little is pruned
    if surplus(1.0) <= least:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if surplus(middle) <= 0 else (low, middle)
    return low


def _resizing_cost(costs: Costs, rank: int, plan: Priced) -> float:
    share = _share(costs, rank, plan, "pruned")
    return costs.allocation + costs.extraction.at(share) if share else 0.0


def _share(costs: Costs, rank: int, plan: Priced, what: str) -> float:
    return float(shares(costs, getattr(Relieved.of(plan.reliefs, len(costs.classes), costs.ranks), what))[rank])


def _migration_cost(costs: Costs, seen: Observation, rank: int, plan: Priced, settings: Semi) -> float:
    """Return sendCost + Phi1 + the longest Phi2 over the receivers, seconds an iteration."""
    received = received_columns(costs, plan.reliefs, plan.receivers)
    whole = costs.tables.full
    slower = np.divide(seen.full, whole, out=np.ones(costs.ranks), where=whole > 0)
    more = (executed_seconds(costs, {}, received) - whole) * slower
    packing = costs.extraction.at(_share(costs, rank, plan, "migrated"))
    moved = transfer_seconds(costs, plan.reliefs, len(plan.receivers), settings.mig.primitive)
    return packing + moved + float(more.max())
