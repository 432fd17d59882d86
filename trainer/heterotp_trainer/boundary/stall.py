"""Whether a gang stalls, and which rank it waits for: decided from what all ranks report of themselves."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from heterotp_api.formatting import listed, ranks_listed, stall_text

LEAST_SECONDS = 5.0  # without an iteration
ITERATIONS = 5  # medians of an iteration without one
UNKNOWN_SECONDS = 30.0  # while no iteration has ended and no rank waits for another one: the first loads and compiles
LEAST_DEADLINE_SECONDS = 300.0
DEADLINE_ITERATIONS = 10
SILENT_SECONDS = 5.0  # without a heartbeat
STOP_SECONDS = 5.0  # from a request to stop, in which an iteration must end while the gang stalls
COMPUTING_STOP_SECONDS = 60.0  # the same before a stall is shown, while no rank waits for another one
STUCK_SECONDS = 5.0  # in one collective
ANY = "a collective"  # that has no name
NAMED = 3
UNCERTAIN_SECONDS = 2.5  # of the moment since when a rank is where it is: two beats and the time of a call
MOST_TEXT = 200  # characters of what another rank reports


@dataclass(frozen=True)
class Place:
    """Where a rank is; beat: number of its heartbeat. seconds: how long it has been there."""

    beat: int
    iteration: int
    phase: str
    waits_for: str  # a collective; empty: it computes
    reason: str  # why this may take long; empty: no reason
    seconds: float

    def to_json(self) -> str:
        """Return the text of a heartbeat."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Place":
        """Return the place that another rank reports; raises ValueError, KeyError or TypeError where it is none."""
        found = json.loads(text)
        return cls(
            beat=int(found["beat"]),
            iteration=int(found["iteration"]),
            phase=str(found["phase"])[:MOST_TEXT],
            waits_for=str(found["waits_for"])[:MOST_TEXT],
            reason=str(found["reason"])[:MOST_TEXT],
            seconds=float(found["seconds"]),
        )


@dataclass(frozen=True)
class Seen:
    """The last heartbeat of a rank, and how many seconds ago it arrived; place: None before the first one."""

    place: Place | None
    age: float

    @property
    def silent(self) -> bool:
        """Whether heartbeats are missing."""
        return self.place is None or self.age > SILENT_SECONDS


@dataclass(frozen=True)
class Stall:
    """No iteration for `seconds`.

    culprits: the ranks that the others wait for, ascending; overdue: past the deadline. where: where the ranks are, for
    people; it stays the same while they are there.
    """

    seconds: float
    culprits: tuple[int, ...]
    where: str
    overdue: bool

    @property
    def text(self) -> str:
        """The sentence about it."""
        return stall_text(f"for {self.seconds:.0f} s", self.where)


def stall_of(
    seen: Sequence[Seen], idle: float, median: float | None, now: float, deadline: float | None
) -> Stall | None:
    """Return the stall that heartbeats show, by rank; None while there is none.

    idle: seconds since the last iteration ended; median: seconds of an iteration, None: none has ended. now: unix
    seconds, for the text. deadline: the policy's seconds without an iteration; None: 10 medians, at least 300, which do
    not hold while all ranks prepare the first iteration.
    """
    if idle < _limit(seen, median) or any(
        each.place is not None and each.place.reason and not each.silent for each in seen
    ):
        return None
    culprits = _culprits(seen)
    last = deadline or max(LEAST_DEADLINE_SECONDS, DEADLINE_ITERATIONS * (median or 0.0))
    preparing = median is None and deadline is None and len(culprits) == len(seen)
    return Stall(idle, culprits, _where(seen, culprits, now), idle > last and not preparing)


def _limit(seen: Sequence[Seen], median: float | None) -> float:
    """Return the seconds without an iteration from which on the gang stalls."""
    if median is not None:
        return max(LEAST_SECONDS, ITERATIONS * median)
    return LEAST_SECONDS if _apart(seen) else UNKNOWN_SECONDS


def _apart(seen: Sequence[Seen]) -> bool:
    """Return whether a rank is stuck in a collective that has a name, and another rank is elsewhere."""
    places = [each.place for each in seen if not each.silent]
    stuck = {p.waits_for for p in places if p and p.waits_for not in ("", ANY) and p.seconds >= STUCK_SECONDS}
    found = {p.waits_for for p in places if p and p.waits_for != ANY}
    return bool(stuck) and (len(found) > 1 or len(places) < len(seen))


def hopeless(places: Sequence[Place], asked: float, median: float | None, *, stalled: bool = False) -> bool:
    """Return whether a stop must end this gang by force: no iteration has ended since it was asked for.

    places: of the ranks that are known; asked: seconds since then; median: see stall_of; stalled: whether a stall is
    shown. A known reason is waited for. So is, for longer, code of the user before a stall is shown, in which no rank
    waits for another one: a long iteration, or a first one.
    """
    if any(place.reason for place in places):
        return False
    if stalled:
        return asked > STOP_SECONDS
    stuck = any(place.waits_for and place.seconds >= STUCK_SECONDS for place in places)
    return asked > max(STOP_SECONDS if stuck else COMPUTING_STOP_SECONDS, 3 * (median or 0.0))


def _culprits(seen: Sequence[Seen]) -> tuple[int, ...]:
    """Return the ranks that are silent, else those that compute, else those that wait for another collective."""
    silent = tuple(rank for rank, each in enumerate(seen) if each.silent)
    if silent:
        return silent
    computing = tuple(rank for rank, each in enumerate(seen) if each.place is not None and not each.place.waits_for)
    if computing:
        return computing
    collectives = [each.place.waits_for for each in seen if each.place is not None]
    usual = max(collectives, key=collectives.count)
    return tuple(rank for rank, what in enumerate(collectives) if what != usual)


def _where(seen: Sequence[Seen], culprits: Sequence[int], now: float) -> str:
    def clock(seconds: float) -> str:
        return time.strftime("%H:%M:%S", time.gmtime(now - seconds)) + " UTC"

    def about(rank: int) -> str:
        each = seen[rank]
        if each.place is None:
            return f"rank {rank} has sent no heartbeat"
        if each.silent:
            return f"rank {rank} has sent no heartbeat since {clock(each.age)}"
        since = clock(each.place.seconds + each.age)
        if each.place.waits_for:
            return f"rank {rank} waits for {each.place.waits_for} since {since}"
        return f"rank {rank} is still computing ({each.place.phase}, since {since})"

    parts = [listed([about(rank) for rank in culprits], NAMED)] if culprits else []
    others = [rank for rank in range(len(seen)) if rank not in culprits]
    return ", ".join([*parts, *_waiting(seen, others, bool(culprits))])


def _waiting(seen: Sequence[Seen], ranks: Sequence[int], others: bool) -> list[str]:
    """Return what the ranks wait for, one part for each collective; others: after ranks that were named."""
    by_collective: dict[str, list[int]] = {}
    for rank in ranks:
        place = seen[rank].place
        if place is not None:
            by_collective.setdefault(place.waits_for, []).append(rank)
    if others and len(by_collective) == 1:
        return [f"the others wait for {what}" for what in by_collective]
    return [
        f"{ranks_listed(each)} wait{'s' if len(each) == 1 else ''} for {what}" for what, each in by_collective.items()
    ]


class HeartbeatsSeen:
    """The newest heartbeat of every rank, and when it arrived."""

    def __init__(self, ranks: int) -> None:
        self._newest: dict[int, tuple[Place, float]] = {}
        self._came: dict[int, tuple[tuple[int, str, str], float]] = {}  # where each rank is, and since when
        self._ranks = ranks

    def take(self, texts: Mapping[int, str], now: float) -> list[Seen]:
        """Add heartbeats by rank; return what is known of each. now: seconds of a clock that never goes back.

        What is no heartbeat counts as silence.
        """
        for rank, text in texts.items():
            try:
                place = Place.from_json(text)
            except (ValueError, KeyError, TypeError):
                continue
            before = self._newest.get(rank)
            if before is None or before[0].beat != place.beat:
                self._newest[rank] = self._steady(rank, place, now), now
        return [self._of(rank, now) for rank in range(self._ranks)]

    def _steady(self, rank: int, place: Place, now: float) -> Place:
        """Return the place with the moment that the rank came there as first seen: a later beat must not move it."""
        at, came = (place.iteration, place.phase, place.waits_for), now - place.seconds
        before = self._came.get(rank)
        if before is not None and before[0] == at and abs(before[1] - came) <= UNCERTAIN_SECONDS:
            came = before[1]
        self._came[rank] = at, came
        return replace(place, seconds=now - came)

    def _of(self, rank: int, now: float) -> Seen:
        if rank not in self._newest:
            return Seen(None, 0.0)
        place, arrived = self._newest[rank]
        return Seen(place, now - arrived)
