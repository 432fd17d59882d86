"""A column linear with q, k and v in one matrix, as user code expects its output: all q, then all k, then all v."""

from torch import Tensor

from heterotp_trainer.tensor_parallel.linear import ColumnParallelLinear


class FusedColumnLinear(ColumnParallelLinear):
    """[..., D] -> [..., R_i], in `sections` parts, in each of which this rank's units are side by side.

    Its weight has the rows of one unit after another, so that units can move.
    """

    sections = 1

    @property
    def section_sizes(self) -> list[int]:
        """Columns of each section of this rank's output."""
        return [len(self.weight) // self.sections] * self.sections

    def forward(self, x: Tensor) -> Tensor:
        """Return the product with its columns ordered by section."""
        out: Tensor = super().forward(x)
        if self.sections == 1:
            return out
        per_unit = self.spec.rows_per_unit
        units = out.shape[-1] // per_unit
        parts = out.reshape(*out.shape[:-1], units, self.sections, per_unit // self.sections)
        return parts.transpose(-3, -2).reshape(out.shape)
