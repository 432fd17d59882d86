"""When a status document brings news to who knows an earlier one, and how an answer says that there is none.

News are facts (states, generations, decisions, who straggles) and numbers that jump. Iterations go on and times are
noisy at every poll: that is none, and waits until the whole document is asked for again, WHOLE_SECONDS later. Nor is
for how long no iteration has ended: who asks sees that by the place, and then asks for whole documents.
A rank that gives its document a token (ETag) answers the same token without news by 304 and the place that it has
reached, in a header. Tokens and places are a stranger's: they have one short form each, any other text is none.
"""

import re
from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import NamedTuple

from heterotp_api.trainer_status import MOST, TrainerRank, TrainerStatus

WHOLE_SECONDS = 30.0  # after which the operator asks for a whole document, and shows its numbers; of many jobs later
JUMP_RATIO = 0.5  # noise of 5 % on every number of every poll must be no news
TINY = 1e-9
PLACE_HEADER = "X-HeteroTP-Place"
TOKEN = 'W/"[0-9a-f]{32}"'  # regular expressions
PLACE = "([0-9]{1,16})\\.([0-9]{1,16})"

FACTS = (
    *("job", "attempt", "state", "started_at", "total_iterations", "resumed_from", "applied_generation", "strategy"),
    *("control_generation", "control_error_generation", "plan_hash", "decision_id", "moves", "emulated"),
    "lease_expired",
)
TEXTS = ("message", "stall", "control_error", "reason", "stalled_by")  # that there is one is a fact
PRESENT = ("stalled_seconds", "idle_seconds")  # as are these
TIMES = (
    *("iteration_seconds", "predicted_iteration_seconds", "limit_iteration_seconds", "untouched_iteration_seconds"),
)
RANK_NUMBERS = ("slowdown", "share", "injected_slowdown", "measured_slowdown")


class Place(NamedTuple):
    """How far a rank has come."""

    epoch: int
    iteration: int

    def __str__(self) -> str:
        """Return the header's text."""
        return f"{self.epoch}.{self.iteration}"


def place_of(text: str | None) -> Place | None:
    """Return the place that a header holds, None where it holds none."""
    found = re.fullmatch(PLACE, text) if text is not None else None
    if found is None:
        return None
    place = Place(*map(int, found.groups()))
    return place if max(place) <= MOST else None


def token_of(text: str | None) -> str:
    """Return the token that a header holds, empty where it holds none."""
    return text if text is not None and re.fullmatch(TOKEN, text) else ""


class News(NamedTuple):
    """What of a document may be news to who knows an earlier one; a fifth of the document's memory."""

    facts: Hashable
    numbers: Mapping[tuple[str, ...], float]

    def to(self, known: "News") -> bool:
        """Return whether this is more than who has `known` can wait for."""
        return known.facts != self.facts or jumped(known.numbers, self.numbers)


def news_of(status: TrainerStatus) -> News:
    """Return what of a document may be news."""
    return News(_facts(status), _numbers(status))


def is_news(known: TrainerStatus, status: TrainerStatus) -> bool:
    """Return whether `status` holds more than who has `known` can wait for."""
    return news_of(status).to(news_of(known))


def _facts(status: TrainerStatus) -> Hashable:
    return (
        *(getattr(status, name) for name in FACTS),
        *(bool(getattr(status, name)) for name in TEXTS),
        *(getattr(status, name) is None for name in PRESENT),
        bool(status.ranks),
        tuple(fact for rank in status.ranks if (fact := _rank_fact(rank)) is not None),
        tuple((each.uid, each.state, each.ranks) for each in status.injections),
        frozenset((each.rank, each.kind) for each in status.causes),
    )


def _rank_fact(rank: TrainerRank) -> Hashable | None:
    """Return what is a fact of a rank; None: nothing, and which such ranks a long document shows changes with noise."""
    if rank.straggler or rank.injection_problem or rank.injected_slowdown != 1.0:
        return rank.rank, rank.straggler, bool(rank.injection_problem), rank.injected_slowdown
    return None


def _numbers(status: TrainerStatus) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float | None] = {(name,): getattr(status, name) for name in TIMES}
    found |= {_of_rank(rank.rank, name): getattr(rank, name) for rank in status.ranks for name in RANK_NUMBERS}
    return {where: value for where, value in found.items() if value is not None}


@lru_cache(maxsize=4096)  # the jobs that an operator knows share these keys
def _of_rank(rank: int, name: str) -> tuple[str, ...]:
    return "ranks", str(rank), name


def jumped(old: Mapping[tuple[str, ...], float], new: Mapping[tuple[str, ...], float]) -> bool:
    """Return whether a number moved by half or more, or is new outside of the table of ranks."""
    return any(
        abs(value - old[where]) >= JUMP_RATIO * max(abs(old[where]), abs(value), TINY)
        if where in old
        else where[0] != "ranks"
        for where, value in new.items()
    )
