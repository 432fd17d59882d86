"""Refuses an update whose loss or gradients are not finite, before the optimizer makes it."""

import math
from typing import Literal

OnNonFinite = Literal["Stop", "Skip"]
MOST_SKIPPED = 10  # updates in a row: after them the parameters themselves must be broken


class NonFiniteError(RuntimeError):
    """The loss or the norm of the gradients is not finite; nothing was updated."""


class FiniteGuard:
    """Whether updates may be made, by the norm of loss and gradients, which is the same on all ranks.

    skipped: updates that were left out.
    """

    def __init__(self, policy: OnNonFinite) -> None:
        self._policy = policy
        self._in_a_row = 0
        self.skipped = 0

    def allows(self, norm: float, iteration: int) -> bool:
        """Return whether the update of `iteration` may be made.

        Raises NonFiniteError under Stop, and under Skip after MOST_SKIPPED updates in a row.
        """
        if math.isfinite(norm):
            self._in_a_row = 0
            return True
        found = f"iteration {iteration}: the loss or the norm of the gradients is not finite ({norm})"
        if self._policy == "Stop":
            raise NonFiniteError(f"{found}: stopped before the update (onNonFinite: Stop)")
        if self._in_a_row == MOST_SKIPPED:
            raise NonFiniteError(f"{found}, as in the {MOST_SKIPPED} iterations before: stopped")
        self._in_a_row += 1
        self.skipped += 1
        return False
