"""The messages in which units travel: a pure function of two unit plans, so that both ends make the same list."""

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from heterotp_trainer.plans.unit_plan import Family, Ranges, Transfer, UnitPlan


@dataclass(frozen=True)
class Piece:
    """Adjacent units of one ShardedState.

    state: its number. taken_from, put_at: place of the first unit at the source and at the target. units: how many.
    """

    state: int
    taken_from: int
    put_at: int
    units: int


Message = tuple[Piece, ...]


def place(ranges: Ranges, unit: int) -> int:
    """Return the place of a unit among the rank's units, which are ascending."""
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
    before: UnitPlan, after: UnitPlan, moves: Sequence[Transfer], unit_bytes: Sequence[int], most_bytes: int
) -> dict[tuple[int, int], list[Message]]:
    """Return, by (source, target), the messages that carry these transfers, of at most `most_bytes` each.

    unit_bytes: of each ShardedState. A message holds at least one unit, even where that is more than `most_bytes`.
    """
    found: dict[tuple[int, int], list[list[Piece]]] = {}
    filled: dict[tuple[int, int], int] = {}
    for move in moves:
        pair = (move.source, move.target)
        out, into = before.ranges(move.family, pair[0]), after.ranges(move.family, pair[1])
        first, there = place(out, move.start), place(into, move.start)
        for state, nbytes in enumerate(unit_bytes):
            done = 0
            while done < move.units:
                room = (most_bytes - filled.get(pair, most_bytes)) // nbytes if nbytes else move.units
                if room < 1:  # a new message, of one unit at least
                    found.setdefault(pair, []).append([])
                    filled[pair], room = 0, max(1, most_bytes // nbytes if nbytes else move.units)
                count = min(room, move.units - done)
                found.setdefault(pair, [[]])[-1].append(Piece(state, first + done, there + done, count))
                filled[pair] = filled.get(pair, 0) + count * nbytes
                done += count
    return {pair: [tuple(message) for message in every] for pair, every in found.items()}
