"""What loggers write, and what a logger is."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

MOST_RANKS = 64  # of which each one's slow-down is written; of larger gangs the largest one alone


@dataclass(frozen=True)
class Numbers:
    """Values of an iteration by name, all of them finite; time: unix seconds."""

    iteration: int
    time: float
    values: Mapping[str, float]


@dataclass(frozen=True)
class Note:
    """A sentence for people about an iteration; kind: `decisions`, `moves` or `injections`; time: unix seconds."""

    iteration: int
    time: float
    kind: str
    text: str


class Logger(Protocol):
    """Writes by one library. Called from one thread, which opened nothing yet; whatever it raises ends its logging."""

    def write(self, numbers: Sequence[Numbers], notes: Sequence[Note]) -> None:
        """Write what was added since the last call, in order."""

    def close(self, state: str) -> None:
        """Write the end; state: of the run, `succeeded`, `stopping` or `failed`, or `running`: others go on."""


def of_history(line: Mapping[str, Any]) -> Numbers:
    """Return the numbers of an entry of history.jsonl."""
    slowed = {rank: each["chi"] for rank, each in enumerate(line["ranks"]) if each["chi"] is not None}
    named = {f"slowdown/rank_{rank}": chi for rank, chi in slowed.items()} if len(line["ranks"]) <= MOST_RANKS else {}
    most = {"slowdown/most": max(slowed.values())} if slowed else {}
    values = {"loss/train": line["loss"], "seconds/iteration": line["iterationSeconds"], **most, **named}
    return Numbers(line["iteration"], line["time"], finite(values))


def finite(values: Mapping[str, float | None]) -> dict[str, float]:
    """Return the values that are finite numbers."""
    return {name: float(value) for name, value in values.items() if value is not None and math.isfinite(value)}
