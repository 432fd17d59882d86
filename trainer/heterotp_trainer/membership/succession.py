"""Where units go when ranks are lost or come: pure functions of unit plans, the same on every rank."""

from collections.abc import Mapping, Sequence

from heterotp_trainer.plans.unit_plan import FAMILIES, Range, Ranges, UnitPlan, balanced_counts


def inherited(before: UnitPlan, heirs: Mapping[int, int], members: Sequence[int]) -> UnitPlan:
    """Return the plan of the members, in which each lost rank's units belong to its heir.

    before: of all ranks. heirs: of each lost rank the member that holds its mirror. members: ranks of `before` that are
    left, in the order of their new ranks.
    """
    place = {rank: number for number, rank in enumerate(members)}
    owned: dict[str, tuple[Ranges, ...]] = {}
    for family in FAMILIES:
        found: list[list[Range]] = [[] for _ in members]
        for rank in range(before.ranks):
            found[place[heirs.get(rank, rank)]] += before.ranges(family, rank)
        owned[family] = tuple(_merged(ranges) for ranges in found)
    return UnitPlan(owned["heads"], owned["ffn"], owned["vocab"], before.weights)


def _merged(ranges: Sequence[Range]) -> Ranges:
    """Return ranges in ascending order, adjacent ones as one."""
    found: list[Range] = []
    for start, stop in sorted(ranges):
        if found and found[-1][1] == start:
            found[-1] = found[-1][0], stop
        else:
            found.append((start, stop))
    return tuple(found)


def widened(before: UnitPlan, place: int) -> UnitPlan:
    """Return the plan with one more rank, whose number is `place`, and which owns no units."""
    owned: dict[str, tuple[Ranges, ...]] = {}
    for family in FAMILIES:
        ranges = [before.ranges(family, rank) for rank in range(before.ranks)]
        owned[family] = (*ranges[:place], (), *ranges[place:])
    return UnitPlan(owned["heads"], owned["ffn"], owned["vocab"], before.weights)


def speed_of_newcomer(known: Mapping[int, float], declared: Sequence[float | None], origin: int) -> float:
    """Return the relative speed that a rank is taken to have when it comes back.

    known: of the others now, by origin; declared: of each origin in the manifest. As far as speeds are declared, it has
    the same relation to the others as it was declared to have.
    """
    own = declared[origin] if all(declared) else None
    relations = [speed / (declared[other] or 1.0) if own else speed for other, speed in known.items()]
    return (own or 1.0) * sum(relations) / len(relations) if relations else 1.0


def shared_out(held: UnitPlan, speeds: Sequence[float]) -> UnitPlan:
    """Return the plan in which the ranks share all units by their speeds, moving few; speeds: none, all alike."""
    pace = list(speeds) or [1.0] * held.ranks
    counts = {
        family: balanced_counts(
            held.total(family), pace, 1 if family == "ffn" and held.total(family) >= held.ranks else 0
        )
        for family in FAMILIES
    }
    return held.rearranged(counts)
