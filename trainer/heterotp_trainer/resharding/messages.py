"""In which messages units travel: the same list on sender and receiver, made from the two plans alone. Pure."""

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from heterotp_trainer.plans.unit_plan import Family, Ranges, Transfer, UnitPlan


@dataclass(frozen=True)
class Piece:
    """Units of one slot: number of the slot, the first unit's place at the source and at the target, how many."""

    state: int
    taken_from: int
    put_at: int
    units: int


Message = tuple[Piece, ...]


def place(ranges: Ranges, unit: int) -> int:
    """Return the place of a unit among the rank's own, which are ascending."""
    before = bisect.bisect_right(ranges, (unit, float("inf"))) - 1
    return sum(stop - start for start, stop in ranges[:before]) + unit - ranges[before][0]


def kept(before: UnitPlan, after: UnitPlan, family: Family, rank: int) -> Iterator[tuple[int, int, int]]:
    """Yield old place, new place and number of units that a rank keeps."""
    new = after.ranges(family, rank)
    for start, stop in before.ranges(family, rank):
        for other_start, other_stop in new:
            first, last = max(start, other_start), min(stop, other_stop)
            if first < last:
                yield place(before.ranges(family, rank), first), place(new, first), last - first


def messages(
    before: UnitPlan, after: UnitPlan, journeys: Sequence[Transfer], unit_bytes: Sequence[int], most_bytes: int
) -> dict[tuple[int, int], list[Message]]:
    """Return by source and target the messages in which these journeys' units travel, `most_bytes` each if that holds
    one unit of one slot.

    unit_bytes: of each slot.
    """
    found: dict[tuple[int, int], list[list[Piece]]] = {}
    filled: dict[tuple[int, int], int] = {}
    for journey in journeys:
        pair = (journey.source, journey.target)
        out, into = before.ranges(journey.family, pair[0]), after.ranges(journey.family, pair[1])
        first, there = place(out, journey.start), place(into, journey.start)
        for state, nbytes in enumerate(unit_bytes):
            done = 0
            while done < journey.units:
                room = (most_bytes - filled.get(pair, most_bytes)) // nbytes if nbytes else journey.units
                if room < 1:  # a new message, of one unit at least
                    found.setdefault(pair, []).append([])
                    filled[pair], room = 0, max(1, most_bytes // nbytes if nbytes else journey.units)
                count = min(room, journey.units - done)
                found.setdefault(pair, [[]])[-1].append(Piece(state, first + done, there + done, count))
                filled[pair] = filled.get(pair, 0) + count * nbytes
                done += count
    return {pair: [tuple(message) for message in every] for pair, every in found.items()}
