"""Changes that go back and forth with a rank's speed are damped (docs/algorithms.md, Decisions that alternate).

A change for a rank that reverses the last one within LASTING windows raises the rank's level, and the next reversal
must be due for 2^level windows without interruption. Every LASTING windows without a change that is due lower it again.
The first change for a rank never waits.
"""

from collections.abc import Mapping
from dataclasses import replace

from heterotp_trainer.plans.alternation import Alternation, Alternations

LASTING = 2  # windows; after a shorter time more iterations ran under the wrong plan than under the right one
MOST = 4  # levels: 16 windows


def watched(records: Alternations, due: Mapping[int, bool], now: int, window: int) -> Alternations:
    """Return the records after a boundary; due: by rank the change that is due, True where it is slower."""
    return tuple(_watched(each, due.get(each.rank) == (not each.slower), now, window) for each in records)


def waiting(records: Alternations, now: int, window: int) -> frozenset[int]:
    """Return the ranks whose change back is due, but not for long enough."""
    return frozenset(
        each.rank
        for each in records
        if each.due_since is not None and now - each.due_since < (2**each.level - 1) * window
    )


def changed(records: Alternations, made: Mapping[int, bool], now: int, window: int) -> Alternations:
    """Return the records after these changes were made; made: by rank, True where it is slower."""
    by_rank = {each.rank: each for each in records}
    for rank, slower in made.items():
        by_rank[rank] = _changed(by_rank.get(rank, Alternation(rank, slower, 0, now)), slower, now, window)
    return tuple(by_rank[rank] for rank in sorted(by_rank))


def withdrawn(records: Alternations, made: Mapping[int, bool], now: int, window: int) -> Alternations:
    """Return the records after changes that were proposed, but were no longer right when all ranks were ready."""
    back = {rank: not slower for rank, slower in made.items()}
    return changed(changed(records, made, now, window), back, now, window)


def _watched(record: Alternation, due: bool, now: int, window: int) -> Alternation:
    if not due:
        return record if record.due_since is None else replace(record, last_at=now, due_since=None)
    if record.due_since is not None:
        return record
    calm = (now - record.last_at) // (LASTING * window)
    return replace(record, level=max(0, record.level - calm), due_since=now)


def _changed(record: Alternation, slower: bool, now: int, window: int) -> Alternation:
    if record.slower == slower:
        return record
    since = now if record.due_since is None else record.due_since
    soon = since - record.last_at < LASTING * window
    return Alternation(record.rank, slower, min(MOST, record.level + soon), now)
