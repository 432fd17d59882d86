"""From a work plan, the same on all ranks, to the columns of every linear of this rank."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

import torch
import torch.distributed as dist
from heterotp_api.policy import BalancingSettings
from heterotp_api.strategy_blocks import Zero
from torch import Tensor, nn

from heterotp_trainer.balancing.layer_columns import columns_by_layer
from heterotp_trainer.checkpoint.stream import Slot
from heterotp_trainer.plans.costs import Costs
from heterotp_trainer.plans.grains import grain_for
from heterotp_trainer.plans.linears import LinearClass
from heterotp_trainer.plans.work_plan import WorkPlan
from heterotp_trainer.plans.work_reduction import WorkReduction
from heterotp_trainer.rebalancing.column_selection import Importance, block_order, redrawn, unimportant_shares
from heterotp_trainer.rebalancing.paired_units import paired, unpaired_problem
from heterotp_trainer.resharding.sharded_state import ShardedState
from heterotp_trainer.tensor_parallel.column_partition import ColumnPartition, Memory, Migration, whole
from heterotp_trainer.tensor_parallel.columns import ColumnSet
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.linear import ParallelLinear


@dataclass(frozen=True)
class _Group:
    """The linears of one class, in the order of the model."""

    linears: tuple[ParallelLinear, ...]

    def describe(self, tp: TPContext) -> LinearClass:
        """Return their sizes on all ranks, and their calls so far."""
        first = self.linears[0]
        spec = first.spec
        sharded = tuple(units * spec.rows_per_unit for units in tp.unit_plan.counts(spec.family))
        replicated = (first.weight.shape[1 - spec.dim],) * tp.ranks
        columns, outputs = (replicated, sharded) if first.parallel == "column" else (sharded, replicated)
        calls = sum(linear.calls for linear in self.linears)
        return LinearClass(
            first.name, first.parallel, columns, outputs, first.rows, calls, spec.family, spec.rows_per_unit
        )


class ColumnAssigner:
    """All prunable linears of a model, grouped by size; sets the columns of the coming steps."""

    def __init__(self, model: nn.Module, tp: TPContext) -> None:
        self.tp = tp
        groups: dict[tuple[object, ...], list[ParallelLinear]] = {}
        for module in model.modules():
            if isinstance(module, ParallelLinear):
                key = (module.parallel, module.spec, module.weight.shape[1 - module.spec.dim])
                groups.setdefault(key, []).append(module)
        self.groups = tuple(_Group(tuple(linears)) for linears in groups.values())
        self.linears = tuple(linear for group in self.groups for linear in group.linears)
        self._pairs, self._unpaired = paired(model)
        self._tied = _tied(model)
        self._memories = {linear: Memory() for linear in self.linears}
        self._keeps_gradients = False
        self._importance: dict[ParallelLinear, Importance] = {}
        self._period, self._pairs_units = 0, False  # of the columns in force
        self.taken: dict[int, WorkReduction] = {}  # by class, of a linear of this rank, on average

    def classes(self) -> tuple[LinearClass, ...]:
        """Return the classes of linears, with the calls of the iteration that just ended."""
        return tuple(group.describe(self.tp) for group in self.groups)

    def problem(self, policy: BalancingSettings) -> str | None:
        """Return what the model cannot do of a policy, as `field: value: what would be right`; None: nothing."""
        if not policy.pruning.paired_units or not self._unpaired:
            return None
        return unpaired_problem(self._unpaired)

    def forget_calls(self) -> None:
        """Set the counts of calls to 0."""
        for linear in self.linears:
            linear.calls = 0

    # -- importance ---------------------------------------------------------------------------------------

    def follow(self, policy: BalancingSettings) -> None:
        """Keep importance only while the policy needs it: it costs a copy of the weights."""
        self._keeps_gradients = policy.pruning.imputation == "Same"
        if not self._keeps_gradients:
            self.forget_gradients()
        if not policy.needs_importance:
            self._importance = {}
        elif not self._importance:
            self._importance = {linear: Importance(linear) for linear in self.linears}

    def forget_gradients(self) -> None:
        """Drop the gradients that imputation Same keeps."""
        for memory in self._memories.values():
            memory.values.clear()

    def sharded_states(self, parameter: nn.Parameter) -> list[ShardedState]:
        """Return the state of importance that moves with a weight's units."""
        linear = next((each for each in self._importance if each.weight is parameter), None)
        return self._importance[linear].sharded_states(linear.spec) if linear is not None else []

    def slots(self) -> list[Slot]:
        """Return the tensors of importance and of imputation Same that a checkpoint holds, the same on all ranks."""
        found = []
        for linear in self.linears:
            if linear in self._importance:
                found += self._importance[linear].slots(linear.name, linear.spec)
            if self._keeps_gradients:
                found += _memory_slots(linear, self._memories[linear])
        return found

    @property
    def counts(self) -> list[int]:
        """See Importance.counts; empty where importance is not kept."""
        return next((importance.counts for importance in self._importance.values()), [])

    def resume(self, counts: Sequence[int]) -> None:
        """Continue importance from `counts`."""
        for importance in self._importance.values() if counts else ():
            importance.resume(counts)

    def count_step(self) -> None:
        """Count one optimizer step."""
        for linear, importance in self._importance.items():
            partition = linear.partition
            pruned = partition.pruned if partition is not None else None
            importance.step(None if pruned is None else pruned.ids)

    def refresh(self) -> bool:
        """Measure the importance of all columns; return whether it is kept."""
        for importance in self._importance.values():
            importance.refresh()
        return bool(self._importance)

    # -- columns ------------------------------------------------------------------------------------------

    def apply(self, plan: WorkPlan, costs: Costs, policy: BalancingSettings, period: int = 0) -> None:
        """Set every linear's partition by the plan; all ranks call it at the same boundary. period: see `redraw`."""
        settings = policy.pruning
        grain = costs.grains[self.tp.rank] if costs.grains else 1
        self._period, self._pairs_units = period, settings.paired_units
        self.taken = {}
        chosen = [self._choose(k, plan, settings, grain) for k in range(len(self.groups))]
        migrated = self._migrated_ids(chosen, plan)
        for k, group in enumerate(self.groups):
            for number, linear in enumerate(group.linears):
                migrations = self._migrations(k, number, plan, migrated)
                linear.partition = self._partition(linear, chosen[k][number], migrations, settings)
        self._draw()

    def redraw(self, period: int) -> None:
        """Draw the columns anew that are pruned at random, once per period (see draw_period); nothing is exchanged.

        Migrated columns stay: other ranks know them.
        """
        if period == self._period:
            return
        self._period = period
        self._draw()

    def _draw(self) -> None:
        """Draw the period's columns of all classes whose columns are pruned, and not by importance."""
        for group in self.groups:
            cuts = [linear.partition for linear in group.linears if self._delta(linear) is None]
            random = [cut for cut in cuts if cut is not None and cut.pruned is not None]
            if len(random) < len(group.linears):
                continue
            drawn = redrawn(random, (group.linears[0].name, self.tp.rank, self._period))
            for linear, partition in zip(group.linears, drawn, strict=True):
                linear.partition = partition
        if self._pairs_units:
            self._pair()

    def _choose(
        self, k: int, plan: WorkPlan, settings: Zero, auto: int
    ) -> list[tuple[ColumnSet | None, ColumnSet | None]]:
        """Return per linear of class k the columns of this rank that are pruned and that migrate."""
        linears = self.groups[k].linears
        taken = plan.reductions_by_rank.get(self.tp.rank, (WorkReduction(),) * len(self.groups))[k]
        columns = linears[0].weight.shape[1]
        grain = grain_for(settings.grain, auto, columns)
        deltas = [self._delta(linear) for linear in linears]
        room = columns - taken.migrated
        iterations = next((importance.iterations for importance in self._importance.values()), 0)
        unimportant = unimportant_shares(deltas, settings, iterations)
        counts = columns_by_layer(taken.pruned, unimportant, settings, columns, room, grain)
        self.taken[k] = WorkReduction(round(fmean(counts)), taken.migrated)
        out = []
        for linear, delta, count in zip(linears, deltas, counts, strict=True):
            seed = (plan.decision_id, linear.name, self.tp.rank)  # of all periods: it decides what migrates, too
            order = block_order(delta, columns, grain, seed).to(linear.weight.device)
            out.append(_cut(order, columns, grain, count, taken.migrated))
        return out

    def _delta(self, linear: ParallelLinear) -> Tensor | None:
        importance = self._importance.get(linear)
        return importance.delta if importance is not None else None

    def _partition(
        self,
        linear: ParallelLinear,
        chosen: tuple[ColumnSet | None, ColumnSet | None],
        migrations: tuple[Migration, ...],
        settings: Zero,
    ) -> ColumnPartition | None:
        """Return the partition of one linear; None where the plain layer computes the same."""
        pruned, migrated = chosen
        keeps_gradients = settings.imputation == "Same"
        if pruned is None and migrated is None and not migrations and not keeps_gradients:
            return None
        columns, device = linear.weight.shape[1], linear.weight.device
        gone = [each.ids for each in chosen if each is not None]
        grain = next((each.grain for each in chosen if each is not None), 1)
        kept = ColumnSet(torch.cat(gone).sort().values, columns, grain).rest if gone else whole(columns, device)
        return ColumnPartition(kept, pruned, migrated, migrations, settings.imputation, self._memories[linear])

    def _pair(self) -> None:
        """Turn the pruned columns of fc2 into whole hidden units, whose rows fc1, or gate and up, leave out, too."""
        for fc2, firsts in self._pairs.items():
            cut = fc2.partition
            if cut is None or cut.pruned is None:
                continue
            fc2.partition = ColumnPartition(cut.kept, cut.pruned, units=cut.kept)
            for first in firsts:
                rows = first.spec.rows_per_unit
                kept = ColumnSet.of_blocks(cut.kept.ids, cut.kept.total * rows, rows)
                first.partition = ColumnPartition(kept, units=kept)

    def pruned_parts(self) -> Iterator[tuple[nn.Parameter, int, Tensor]]:
        """Yield parameter, dimension and indices of what was pruned, for a step that must not change it.

        A weight that another module computes with, too (an embedding tied to the logits), is left out: its pruned
        columns have gradients from there.
        """
        for linear in self.linears:
            partition = linear.partition
            if partition is None:
                continue
            if partition.units is not None and linear.parallel == "column":
                pruned = partition.units.rest.ids
                yield from ((p, 0, pruned) for p in linear.parameters())
            elif partition.pruned is not None and linear.weight not in self._tied:
                yield linear.weight, 1, partition.pruned.ids

    # -- migration ----------------------------------------------------------------------------------------

    def _migrated_ids(
        self, chosen: Sequence[Sequence[tuple[ColumnSet | None, ColumnSet | None]]], plan: WorkPlan
    ) -> dict[int, Tensor]:
        """Return by sender the migrated columns of its column-parallel linears, concatenated; all ranks call it.

        Rank 0..e-1: the sender broadcasts its indices, [sum of columns], every other rank receives them.
        """
        found = {}
        for sender in plan.senders:
            counts = [
                taken.migrated * len(group.linears)
                for group, taken in zip(self.groups, plan.reductions_by_rank[sender], strict=True)
                if group.linears[0].parallel == "column"
            ]
            ids = torch.empty(sum(counts), dtype=torch.int64)
            if sender == self.tp.rank:
                own = [moved.ids.cpu() for k in self._column_groups() for _, moved in chosen[k] if moved is not None]
                ids = torch.cat([ids[:0], *own])  # empty where only row-parallel linears migrate
            with self.tp.where.waiting("the choice of migrated columns"):
                dist.broadcast(ids, src=sender, group=self.tp.control_group)
            found[sender] = ids
        return found

    def _column_groups(self) -> list[int]:
        return [k for k, group in enumerate(self.groups) if group.linears[0].parallel == "column"]

    def _migrations(self, k: int, number: int, plan: WorkPlan, migrated: dict[int, Tensor]) -> tuple[Migration, ...]:
        """Return the migrations of one linear, the same on all ranks but for the columns of X."""
        found = []
        linears = self.groups[k].linears
        outputs = self.groups[k].describe(self.tp).outputs
        for sender, parts in plan.pieces_by_sender(k).items():
            migration = Migration(sender, outputs[sender], parts, plan.primitive)
            if linears[0].parallel == "column":
                start = self._start(k, number, plan.reductions_by_rank[sender])
                ids = migrated[sender][start : start + migration.columns].to(linears[0].weight.device)
                migration = replace(migration, ids=ids)
            found.append(migration)
        return tuple(found)

    def _start(self, k: int, number: int, taken: Sequence[WorkReduction]) -> int:
        """Return where the columns of linear `number` of class k begin in the sender's indices."""
        before = sum(taken[j].migrated * len(self.groups[j].linears) for j in self._column_groups() if j < k)
        return before + number * taken[k].migrated


def _tied(model: nn.Module) -> frozenset[nn.Parameter]:
    """Return the parameters that several modules hold."""
    holders = Counter(parameter for _, parameter in model.named_parameters(remove_duplicate=False))
    return frozenset(parameter for parameter, count in holders.items() if count > 1)


def _memory_slots(linear: ParallelLinear, memory: Memory) -> list[Slot]:
    """Return the gradients that imputation Same keeps of one linear.

    The dX [M, D] of a column-parallel linear is the part of this rank's units in a sum: on other shares it begins anew.
    """
    cuts = {"weight": linear.spec, "input": linear.spec if linear.parallel == "row" else None}
    return [
        Slot(f"columns/{linear.name}/same_{key}", memory.values.get(key), cut, partial(memory.values.__setitem__, key))
        for key, cut in cuts.items()
    ]


def _cut(
    order: Tensor, columns: int, grain: int, pruned: int, migrated: int
) -> tuple[ColumnSet | None, ColumnSet | None]:
    """Return the pruned columns, the first in `order`, and the migrated ones, the last of the others by index."""
    gone = ColumnSet.of_blocks(order[: pruned // grain], columns, grain) if pruned >= grain else None
    if pruned >= columns:  # the last block may be shorter
        gone = ColumnSet(torch.arange(columns, device=order.device), columns, grain)
    if not migrated:
        return gone, None
    left = gone.rest.ids if gone is not None else torch.arange(columns, device=order.device)
    return gone, ColumnSet(left[len(left) - migrated :], columns, grain)
