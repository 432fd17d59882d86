"""How many columns of each rank are pruned or migrated, per class of linears."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from heterotp_trainer.plans.arrays import Array


@dataclass(frozen=True)
class WorkReduction:
    """Columns taken from one rank, of every linear of one class."""

    pruned: int = 0
    migrated: int = 0


Reductions = Mapping[int, tuple[WorkReduction, ...]]  # by rank, one WorkReduction per class of linears


class WorkReductions(Mapping[int, tuple[WorkReduction, ...]]):
    """Reductions held as arrays of columns, `pruned` and `migrated` [K, e]; ranks that keep all work are absent."""

    def __init__(self, pruned: Array, migrated: Array) -> None:
        self.pruned, self.migrated = pruned, migrated
        self.ranks = np.flatnonzero(((pruned > 0) | (migrated > 0)).any(axis=0)).tolist()

    @classmethod
    def of(cls, reductions: Reductions, classes: int, ranks: int) -> "WorkReductions":
        """Return reductions as arrays; those that are arrays are returned as they are."""
        if isinstance(reductions, WorkReductions):
            return reductions
        pruned, migrated = np.zeros((classes, ranks)), np.zeros((classes, ranks))
        for rank, taken in reductions.items():
            pruned[:, rank] = [each.pruned for each in taken]
            migrated[:, rank] = [each.migrated for each in taken]
        return cls(pruned, migrated)

    @property
    def migrates(self) -> bool:
        """Whether any column migrates."""
        return bool((self.migrated > 0).any())

    @cached_property
    def _by_rank(self) -> dict[int, tuple[WorkReduction, ...]]:
        pairs = np.stack([self.pruned, self.migrated], axis=-1)[:, self.ranks].swapaxes(0, 1).astype(int).tolist()
        return {r: tuple(WorkReduction(*each) for each in taken) for r, taken in zip(self.ranks, pairs, strict=True)}

    def __getitem__(self, rank: int) -> tuple[WorkReduction, ...]:
        return self._by_rank[rank]

    def __iter__(self) -> Iterator[int]:
        return iter(self.ranks)

    def __len__(self) -> int:
        return len(self.ranks)
