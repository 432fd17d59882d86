"""On devices that round differently gradients are averaged, which would hide what one rank computes otherwise.

| call    | a rank holds                                    | afterwards                                       |
|---------|-------------------------------------------------|--------------------------------------------------|
| found   | how far its own gradients were from their means | every rank: which are too far off, on which rank |
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from heterotp_trainer.boundary.agreement import COMPARE_EVERY

FIRST_COMPARED = 3  # updates of an attempt: most mistakes are there from the first one on
# How far a gradient may be from the mean over the ranks: a part of the mean's norm, and a part of the largest norm of
# all gradients so far, because what should be 0 (a bias before a norm) is nothing but rounding.
FINE, COARSE = (0.1, 1e-5), (0.25, 1e-2)
LEAST_LARGEST = 0.1  # of a model that is trained nearly to the end, all gradients are rounding


class GradientAgreement:
    """Whether the ranks' own gradients of replicated tensors are near their mean."""

    def __init__(self, dtype: torch.dtype) -> None:
        """dtype: of the sharded layers' products, which decides how far rounding goes."""
        self._dtype = dtype
        self._largest = LEAST_LARGEST
        self._updates = 0

    def due(self, iteration: int) -> bool:
        """Count an update and return whether its gradients are compared: the first few, then every COMPARE_EVERY."""
        self._updates += 1
        return self._updates <= FIRST_COMPARED or iteration % COMPARE_EVERY == 0

    def found(
        self, names: Sequence[str], own: Tensor, group: dist.ProcessGroup | None, ranks: int
    ) -> dict[str, list[int]]:
        """Return the ranks whose gradient is too far from the mean, by its name (all ranks).

        own: what `average_replicas` measured, [names, 2]. Values that are not finite are left to FiniteGuard. Of two
        ranks both are equally far from the mean.
        """
        own = own.cpu()
        gathered = [torch.empty_like(own) for _ in range(ranks)]
        dist.all_gather(gathered, own, group=group)
        distances = torch.stack([each[:, 0] for each in gathered])  # [ranks, names]
        norms = gathered[0][:, 1]  # one rank's, so that all decide alike
        whole = float(norms.square().sum().sqrt())
        if whole < float("inf"):
            self._largest = max(self._largest, whole)
        part, least = self._bounds()
        far = distances > part * norms + least * self._largest
        far &= distances > 0.6 * distances.amax(0)  # an odd rank draws the mean away from the others, at most by half
        return {
            name: torch.nonzero(far[:, place]).flatten().tolist()
            for place, name in enumerate(names)
            if bool(far[:, place].any())
        }

    def _bounds(self) -> tuple[float, float]:
        """Return the bounds for the precision of matrix products; TF32 rounds them, too."""
        plain = self._dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"
        return FINE if plain else COARSE
