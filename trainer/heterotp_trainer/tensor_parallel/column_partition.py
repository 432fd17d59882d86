"""What one linear computes in one optimizer step: the paper's lineage <layer, matrix, K>, and what migrates.

A lineage is set between two steps and never changes within one: forward, recomputation, backward and all
micro-batches see the same columns.
"""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from heterotp_trainer.plans.linears import Primitive
from heterotp_trainer.plans.work_plan import Piece
from heterotp_trainer.tensor_parallel.columns import ColumnSet

Imputation = Literal["Zero", "Average", "Same"]


@dataclass(frozen=True)
class Migration:
    """Columns that one sender gives away this step, who computes which, and (column-parallel) which of X they are."""

    sender: int
    outputs: int  # R of the sender
    pieces: tuple[Piece, ...]
    primitive: Primitive
    ids: Tensor | None = None  # of the sender's columns, ascending; row-parallel receivers do not need them

    @property
    def columns(self) -> int:
        """Number of columns that migrate."""
        return sum(piece.columns for piece in self.pieces)

    def piece(self, rank: int) -> Piece | None:
        """Return what a rank computes of it."""
        return next((piece for piece in self.pieces if piece.receiver == rank), None)


@dataclass
class Memory:
    """The gradients of the iteration before (imputation Same), as far as they were computed or imputed."""

    values: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class ColumnPartition:
    """One linear's columns of one step.

    kept: computed here. pruned: computed nowhere, their gradients are imputed. given: computed elsewhere.
    units: with pairedUnits the hidden units computed at all, rows of fc1 and columns of fc2.
    """

    kept: ColumnSet
    pruned: ColumnSet | None = None
    given: ColumnSet | None = None
    migrations: tuple[Migration, ...] = ()
    imputation: Imputation = "Zero"
    memory: Memory = field(default_factory=Memory)
    units: ColumnSet | None = None

    def impute(self, name: str, kept: Tensor) -> Tensor:
        """Return a gradient [n, k] of the kept columns in its full shape [n, L], missing columns imputed.

        Zero; Average: the mean of the kept columns; Same: the value of the iteration before (0 at first).
        Given columns stay 0: their values come from elsewhere.
        """
        if len(self.kept) == self.kept.total:
            return kept
        whole = kept.new_empty(len(kept), self.kept.total)  # every column is written once
        self.kept.put(whole, kept)
        if self.given is not None:
            self.given.fill(whole, 0.0)
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
        """Keep a full gradient for the next iteration, where Same needs it."""
        if self.imputation == "Same":
            self.memory.values[name] = gradient.detach().clone()


def whole(total: int, device: torch.device) -> ColumnSet:
    """Return the choice of all columns."""
    return ColumnSet(torch.arange(total, device=device), total)
