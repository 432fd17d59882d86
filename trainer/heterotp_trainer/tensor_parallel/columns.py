"""A set of contraction columns of one linear. Shapes: n rows, L columns in all, k in the set."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class ColumnSet:
    """Ascending column numbers `ids` [k] out of `total` (L); whole blocks of `grain` columns are copied as slices."""

    ids: Tensor
    total: int
    grain: int = 1

    @classmethod
    def of_blocks(cls, numbers: Tensor, total: int, grain: int) -> "ColumnSet":
        """Return the columns of these blocks (block b: columns [b grain, (b + 1) grain))."""
        ascending = numbers.sort().values
        offsets = torch.arange(grain, device=numbers.device)
        return cls((ascending[:, None] * grain + offsets).reshape(-1), total, grain)

    @classmethod
    def of_rows(cls, ids: Tensor, like: "ColumnSet", blocks: Tensor | None) -> list["ColumnSet"]:
        """Return one set per row of ids [n, k], made on the host, on the device of `like` and with its total and grain.

        blocks: the numbers [n, k / grain] of the blocks that the sets consist of; None: of no whole blocks. The device
        is not waited for.
        """
        device = like.ids.device
        found = [cls(each, like.total, like.grain) for each in ids.to(device, non_blocking=True)]
        numbers = None if blocks is None or like.grain == 1 else blocks.to(device, non_blocking=True)
        for row, each in enumerate(found):
            each.__dict__["_blocks"] = None if numbers is None else numbers[row]  # what the property would find
        return found

    def __len__(self) -> int:
        return int(self.ids.numel())

    @property
    def rest(self) -> "ColumnSet":
        """The columns that are not in the set."""
        mask = torch.ones(self.total, dtype=torch.bool, device=self.ids.device)
        mask[self.ids] = False
        return ColumnSet(mask.nonzero().reshape(-1), self.total, self.grain)

    @cached_property
    def mask(self) -> Tensor:
        """Which columns are in the set, on the host: [L]."""
        mask = torch.zeros(self.total, dtype=torch.bool)
        mask[self.ids.cpu()] = True
        return mask

    @cached_property
    def _blocks(self) -> Tensor | None:
        """Numbers of the blocks where the set consists of whole blocks, else None."""
        if self.grain == 1 or self.total % self.grain or len(self) % self.grain:
            return None
        first = self.ids[:: self.grain]
        offsets = torch.arange(self.grain, device=self.ids.device)
        whole = (first[:, None] + offsets).reshape(-1)
        return first // self.grain if bool((first % self.grain == 0).all()) and torch.equal(whole, self.ids) else None

    def gather(self, x: Tensor) -> Tensor:
        """Return the columns of the set side by side: [n, L] -> [n, k]."""
        if len(self) == self.total:
            return x
        if self._blocks is None:
            return x.index_select(1, self.ids)
        # sizes are given, not left to torch: a rank without units has a weight of no rows
        cut = x.reshape(len(x), self.total // self.grain, self.grain).index_select(1, self._blocks)
        return cut.view(len(x), len(self))

    def put(self, whole: Tensor, values: Tensor) -> None:
        """Write values [n, k] into the columns of the set in `whole` [n, L]."""
        if self._blocks is None:
            whole.index_copy_(1, self.ids, values)
            return
        shaped = values.reshape(len(whole), len(self._blocks), self.grain)
        whole.view(len(whole), self.total // self.grain, self.grain).index_copy_(1, self._blocks, shaped)

    def fill(self, whole: Tensor, value: float) -> None:
        """Set the columns of the set in `whole` [n, L] to one value."""
        if self._blocks is None:
            whole.index_fill_(1, self.ids, value)
        else:
            whole.view(len(whole), self.total // self.grain, self.grain).index_fill_(1, self._blocks, value)

    def part(self, start: int, stop: int) -> "ColumnSet":
        """Return columns number start to stop of the set."""
        return ColumnSet(self.ids[start:stop], self.total, 1)
