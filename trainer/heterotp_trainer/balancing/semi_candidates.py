"""The candidates that SEMI chooses among: which columns stragglers migrate and which they prune, with seconds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from heterotp_api.strategy_blocks import Semi

from heterotp_trainer.balancing.history import Observation
from heterotp_trainer.balancing.migration import Priced, receivers_of
from heterotp_trainer.balancing.prediction import iteration_seconds, own_seconds
from heterotp_trainer.balancing.pruning import prune, reference_seconds, timed
from heterotp_trainer.plans.arrays import Array, total
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.grains import blocks, grain_for
from heterotp_trainer.plans.work_reduction import WorkReductions


@dataclass(frozen=True)
class SemiProblem:
    """What all candidates for the same stragglers share; order: the stragglers, the slowest first."""

    costs: Costs
    seen: Observation
    order: Sequence[int]
    settings: Semi
    base_wait: float

    @cached_property
    def wanted(self) -> WorkReductions:
        """The reductions when all stragglers prune, down to T_min."""
        return prune(self.costs, self.seen, self.order, self.settings.zero, self._least, 1.0)

    @property
    def _least(self) -> float:
        """T_min of the times that eq. 1 takes, seconds."""
        return reference_seconds(self.costs, timed(self.seen, self.settings.zero), "minimum")

    @cached_property
    def receivers(self) -> tuple[tuple[int, float], ...]:
        """The ranks that compute migrated columns, with weights."""
        return receivers_of(self.costs, self.seen, self.order, self.settings.mig)

    @cached_property
    def own(self) -> Array:
        """T of each rank without received work, [e]: the same whether the wanted columns are pruned or migrate."""
        return own_seconds(self.costs, self.seen, self.wanted)

    def split(self, x: int, rows_only: bool = False) -> Priced:
        """Return the candidate in which the x slowest migrate and the others prune (eq. 3).

        rows_only: the x slowest migrate columns of row-parallel linears only, and prune the other linears.
        """
        senders = np.zeros(self.costs.ranks, dtype=bool)
        senders[list(self.order[:x])] = True
        moves = senders & (self.costs.tables.rows | (not rows_only))
        return self._moving(np.where(moves, self.wanted.pruned, 0.0))

    def to_all_others(self, x: int) -> Priced:
        """Return the candidate of `split` whose migrated columns all e - x others compute, as eq. 3 is printed."""
        senders = np.zeros(self.costs.ranks, dtype=bool)
        senders[list(self.order[:x])] = True
        receivers = receivers_of(self.costs, self.seen, self.order[:x], self.settings.mig)
        return self._moving(np.where(senders, self.wanted.pruned, 0.0), receivers)

    def with_beta(self, beta: float, alike: bool = False) -> Priced:
        """Return the candidate in which the only straggler migrates beta, 0..1, of its reduction and prunes the rest.

        Row-parallel linears migrate first: they transfer only the columns, while a column-parallel linear transfers its
        whole dY and Y, however few columns migrate. alike: all linears migrate the same share, as the paper has it.
        """
        rank, wanted, costs = self.order[0], self.wanted.pruned, self.costs
        moved = np.zeros_like(wanted)
        work = wanted[:, rank] * costs.tables.operations[:, rank]
        for k, share in enumerate([beta] * len(work) if alike else _by_parallel(costs, work, beta)):
            # a multiple of both grains, so that the pruned rest is whole blocks, too
            grains = (self.settings.zero.grain, self.settings.mig.grain)
            step = math.lcm(*(grain_for(g, costs.grains[rank], costs.classes[k].columns[rank]) for g in grains))
            moved[k, rank] = wanted[k, rank] if share >= 1 else blocks(float(wanted[k, rank]) * share, step)
        return self._moving(moved)

    def bounded(self, limit: float) -> Priced:
        """Return the candidate that prunes as much as the limit allows and migrates nothing."""
        reductions = prune(self.costs, self.seen, self.order, self.settings.zero, self._least, limit)
        seconds = iteration_seconds(self.costs, self.seen, reductions, base_wait=self.base_wait)
        return Priced(reductions, self.receivers, seconds)

    def _moving(self, moved: Array, receivers: tuple[tuple[int, float], ...] | None = None) -> Priced:
        """Return the candidate in which these of the wanted columns migrate; without receivers all are pruned.

        receivers: None: all that are no stragglers.
        """
        to = self.receivers if receivers is None else receivers
        moved = moved if to else np.zeros_like(moved)
        reductions, primitive = WorkReductions(self.wanted.pruned - moved, moved), self.settings.mig.primitive
        seconds = iteration_seconds(self.costs, self.seen, reductions, to, primitive, self.base_wait, self.own)
        return Priced(reductions, to, seconds)


def _by_parallel(costs: Costs, work: Array, beta: float) -> list[float]:
    """Return by class the share of its columns that migrates, so that beta of the whole work [K] migrates."""
    rows = total(work[costs.tables.rows[:, 0]])
    columns = total(work) - rows
    migrated = beta * (rows + columns)
    row_share = min(1.0, migrated / rows) if rows else 0.0
    column_share = max(0.0, migrated - rows) / columns if columns else 0.0
    if beta >= 1:
        row_share = column_share = 1.0
    return [row_share if linears.parallel == "row" else column_share for linears in costs.classes]
