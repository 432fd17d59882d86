"""Which columns one linear computes in one optimizer step (the paper's lineage <layer, matrix, K>), and which migrate.

A partition is set between two steps and never changes within one: forward, recomputation, backward and all
micro-batches use the same columns.
"""

from dataclasses import dataclass, field

import torch
from heterotp_api.strategies import Primitive
from heterotp_api.strategy_blocks import Imputation
from torch import Tensor

from heterotp_trainer.plans.work_plan import Piece
from heterotp_trainer.tensor_parallel.columns import ColumnSet


@dataclass(frozen=True)
class Migration:
    """The columns of one sender that other ranks compute in this step, and which receiver computes which."""

    sender: int
    outputs: int  # rows of the sender's weight
    pieces: tuple[Piece, ...]
    primitive: Primitive
    ids: Tensor | None = None  # [m] column numbers, ascending; None for row-parallel linears, whose X travels

    @property
    def columns(self) -> int:
        """Number of columns that migrate, m."""
        return sum(piece.columns for piece in self.pieces)

    def piece(self, rank: int) -> Piece | None:
        """Return what a rank computes of them; None: nothing."""
        return next((piece for piece in self.pieces if piece.receiver == rank), None)


@dataclass
class Memory:
    """The gradients of the iteration before, computed or imputed, for imputation Same: `weight` and `input`."""

    values: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class ColumnPartition:
    """One linear's columns in one step.

    kept: computed on this rank. pruned: not computed, their gradients are imputed. migrated: computed on other ranks.
    units: with pairedUnits the hidden units that are computed, rows of fc1 and columns of fc2.
    """

    kept: ColumnSet
    pruned: ColumnSet | None = None
    migrated: ColumnSet | None = None
    migrations: tuple[Migration, ...] = ()
    imputation: Imputation = "Zero"
    memory: Memory = field(default_factory=Memory)
    units: ColumnSet | None = None

    def impute(self, name: str, kept: Tensor) -> Tensor:
        """Return a gradient [n, k] of the kept columns in its full shape [n, L], with the pruned columns imputed.

        Zero: 0. Average: the mean of the kept columns. Same: the value of the iteration before (0 at first). Migrated
        columns stay 0, until the receivers' values arrive.
        """
        if len(self.kept) == self.kept.total:
            return kept
        whole = kept.new_empty(len(kept), self.kept.total)  # every column is written once
        self.kept.put(whole, kept)
        if self.migrated is not None:
            self.migrated.fill(whole, 0.0)
        if self.pruned is not None:
            self._fill_pruned(name, whole, kept)
        return whole

    def _fill_pruned(self, name: str, whole: Tensor, kept: Tensor) -> None:
        assert self.pruned is not None
        before = self.memory.values.get(name)
        if self.imputation == "Average" and len(self.kept):
            self.pruned.put(whole, kept.mean(1, keepdim=True).expand(-1, len(self.pruned)).contiguous())
        elif self.imputation == "Same" and before is not None and before.shape == whole.shape:
            self.pruned.put(whole, self.pruned.gather(before))
        else:
            self.pruned.fill(whole, 0.0)

    def remember(self, name: str, gradient: Tensor) -> None:
        """Keep a full gradient [n, L] for the next iteration, where imputation Same needs it."""
        if self.imputation == "Same":
            self.memory.values[name] = gradient.detach().clone()


def whole(total: int, device: torch.device) -> ColumnSet:
    """Return the set of all columns."""
    return ColumnSet(torch.arange(total, device=device), total)
