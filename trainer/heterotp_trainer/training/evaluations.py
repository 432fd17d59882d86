"""What evaluations decide: which model was the best so far, and whether training ends early."""

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Evaluation:
    """The result of one evaluation on held-out data; None and empty: the task has none."""

    loss: float
    accuracy: float | None = None
    perplexity: float | None = None
    sample: str = ""


class Evaluations:
    """The evaluations of a run, kept in its checkpoints. patience: None: training never ends early."""

    def __init__(self, patience: int | None = None) -> None:
        self.patience = patience
        self.best_loss, self.best_iteration = math.inf, 0
        self.last_iteration, self.worse_in_a_row = 0, 0

    def take(self, iteration: int, loss: float) -> bool:
        """Add the loss after an iteration; return whether it is the lowest so far."""
        self.last_iteration = iteration
        if loss < self.best_loss:
            self.best_loss, self.best_iteration, self.worse_in_a_row = loss, iteration, 0
            return True
        self.worse_in_a_row += 1
        return False

    @property
    def ended(self) -> bool:
        """Whether so many evaluations in a row brought no lower loss that training ends."""
        return self.patience is not None and self.worse_in_a_row >= self.patience

    def state_dict(self) -> dict[str, Any]:
        """Return the state for checkpoints; no loss yet is None, which JSON can hold."""
        return {
            "best_loss": self.best_loss if math.isfinite(self.best_loss) else None,
            "best_iteration": self.best_iteration,
            "last_iteration": self.last_iteration,
            "worse_in_a_row": self.worse_in_a_row,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        self.best_loss = math.inf if state["best_loss"] is None else state["best_loss"]
        self.best_iteration, self.last_iteration = state["best_iteration"], state["last_iteration"]
        self.worse_in_a_row = state["worse_in_a_row"]
