"""Who goes on after ranks were lost, and what the survivors make of it: pure decisions, the same on every rank."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Left:
    """What a rank says of itself when it gives up a generation.

    rank: its origin. number: counts what it has said, ascending. dead: origins that it knows to be lost. applied: the
    last iteration whose update it has made; norm: of that update's gradients. ready: the iteration whose gradients it
    holds, its wards' among them, without having updated; 0: none. plan: hash of the units that its tensors are cut by,
    empty while they move; mirrored: hash of the plan that its wards' mirrors belong to, empty without them. evaluated:
    the last iteration that it has evaluated. stop: whether all ranks have agreed to stop. admitting: whether a rank
    that came back was being let in: then no other rank need be lost.
    """

    rank: int
    number: int
    generation: int
    dead: tuple[int, ...] = ()
    applied: int = 0
    norm: float = 0.0
    ready: int = 0
    plan: str = ""
    mirrored: str = ""
    evaluated: int = 0
    stop: bool = False
    admitting: bool = False


def problem(before: Collection[int], live: Collection[int], least: int, *, leased: bool) -> str:
    """Return why these survivors of the ranks before must not go on; empty: they may.

    least: spec.runPolicy.elastic.minRanks. leased: whether they hold the lease that only one half of a gang can get.
    """
    count, whole = len(live), len(before)
    if count == whole:
        return "a collective failed, but no rank was lost"
    if count < least:
        return f"{count} of {whole} ranks are left, spec.runPolicy.elastic.minRanks is {least}"
    if 2 * count < whole or (2 * count == whole and not leased):
        return f"{count} of {whole} ranks are left, no majority: others may go on elsewhere"
    return ""


def needs_lease(before: Collection[int], live: Collection[int]) -> bool:
    """Return whether the survivors are exactly one half: then the other one might go on, too."""
    return 2 * len(live) == len(before)


def newest(lefts: Sequence[Left]) -> Left:
    """Return what the rank says that is the furthest: all survivors continue from its last update."""
    return max(lefts, key=lambda left: (left.applied, -left.rank))


def unprotected(lefts: Sequence[Left], buddies: Mapping[int, int], before: Collection[int]) -> str:
    """Return why the survivors do not hold the whole state together; empty: they do.

    buddies: of each origin of the ranks before the origin that mirrors it. A survivor one update behind must hold the
    gradients of that update; a lost rank's mirror must be of the same units.
    """
    by_rank = {left.rank: left for left in lefts}
    plan, last = newest(lefts).plan, newest(lefts).applied
    if not plan or any(left.plan != plan for left in lefts):
        return "units were on their way to other ranks"
    behind = [left.rank for left in lefts if left.applied != last and left.ready != last]
    if behind:
        return f"ranks {behind} lack the gradients of iteration {last}"
    for lost in sorted(set(before) - set(by_rank)):
        buddy = by_rank.get(buddies.get(lost, lost))
        if buddy is None:
            return f"rank {lost} and the one that mirrors it, {buddies.get(lost, lost)}, are lost together"
        if buddy.mirrored != plan:
            return f"rank {lost} was not mirrored yet"
    return ""
