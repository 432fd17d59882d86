"""What happened in a run and when, as report.json holds it: decisions, moves of units, injections, shares.

Every list is bounded: of more than MOST entries the first and the newest are kept, and the others are counted.
`iteration` is always the first one in which something holds.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import Field, ValidationError

from heterotp_api.base import Model

# entries of each list: the report of a week then has at most some 500 KB
MOST = {"decisions": 300, "moves": 300, "injections": 300, "shares": 2000}
Entry = TypeVar("Entry")


class SlowRank(Model):
    """A straggler, and how slow it was."""

    rank: int
    slowdown: float | None = Field(None, description="chi: times slower, as in the status; null: not measured.")


class ReducedRank(Model):
    """A rank that computes fewer columns than it owns."""

    rank: int
    pruned_ratio: float = Field(0.0, description="Share of its columns that is deleted.")
    migrated_ratio: float = Field(0.0, description="Share of its columns that other ranks compute.")


class DecisionRecord(Model):
    """One decision with the numbers that it was made on."""

    attempt: int
    iteration: int = Field(description="The first iteration under it.")
    time: str = Field(description="UTC, ISO 8601.")
    decision_id: int = Field(description="Its number; counted anew in each attempt.")
    strategy: str
    cause: str = Field(description="Why the plan is as it is, one word for programs.")
    reason: str = Field(description="The same in one sentence for people.")
    stragglers: tuple[SlowRank, ...] = ()
    reductions: tuple[ReducedRank, ...] = ()
    deleted_share: float = Field(0.0, description="Share of all ranks' work that is deleted under it.")
    untouched_iteration_seconds: float | None = Field(None, description="Predicted if all ranks kept their work.")
    predicted_iteration_seconds: float | None = Field(None, description="Predicted for the decision.")


class MoveRecord(Model):
    """One move of units between ranks."""

    attempt: int
    iteration: int = Field(description="The first iteration with the new shares.")
    time: str = Field(description="UTC, ISO 8601.")
    decision_id: int = Field(description="The decision that it carries out.")
    heads: int = Field(0, description="Heads that changed rank.")
    hidden_units: int = Field(0, description="Hidden units that changed rank.")
    vocabulary_rows: int = Field(0, description="Rows of the vocabulary that changed rank.")
    moved_bytes: float
    seconds: float = Field(description="What the move took.")
    expected_seconds: float | None = Field(None, description="What it was expected to take.")


class InjectionRecord(Model):
    """One rank that injections slow, from one iteration until another."""

    attempt: int
    rank: int
    slowdown: float = Field(description="chi: times slower, the product of all injections on the rank.")
    mode: str = Field(description="How the device is slowed.")
    from_iteration: int
    from_time: str = Field(description="UTC, ISO 8601.")
    to_iteration: int | None = Field(None, description="The first iteration without it; null: it had not ended.")
    to_time: str | None = None
    problem: str = Field("", description="Why the device cannot follow; empty: it can.")


class ShareRecord(Model):
    """The share of the units that a rank owns from an iteration on, until its next entry."""

    attempt: int
    rank: int
    iteration: int
    share: float = Field(description="0..1.")


class LeftOut(Model):
    """How many entries of each list were left out, between the first and the newest ones."""

    decisions: int = 0
    moves: int = 0
    injections: int = 0
    shares: int = 0


class RunJournal(Model):
    """The lists of a run, ascending."""

    decisions: tuple[DecisionRecord, ...] = ()
    moves: tuple[MoveRecord, ...] = ()
    injections: tuple[InjectionRecord, ...] = ()
    shares: tuple[ShareRecord, ...] = ()
    left_out: LeftOut = LeftOut()

    @classmethod
    def read(cls, path: Path) -> "RunJournal":
        """Return what a file holds; an empty journal where it is absent or damaged."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            return cls()

    def after(self, earlier: "RunJournal") -> "RunJournal":
        """Return the journal of both: `earlier` is of what was before, e.g. of earlier attempts of the run."""
        lists, left = {}, {}
        for name in LeftOut.model_fields:
            kept, dropped = bounded((*getattr(earlier, name), *getattr(self, name)), MOST[name])
            lists[name] = kept
            left[name] = dropped + getattr(earlier.left_out, name) + getattr(self.left_out, name)
        return RunJournal(**lists, left_out=LeftOut(**left))


def bounded(entries: Sequence[Entry], most: int) -> tuple[tuple[Entry, ...], int]:
    """Return the first and the newest entries, at most `most`, and how many were left out between them."""
    over = max(0, len(entries) - most)
    first = most // 2
    return (*entries[:first], *entries[first + over :]), over
