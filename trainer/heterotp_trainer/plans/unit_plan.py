"""The unit plan maps every attention head, FFN hidden unit and vocabulary row to the rank that owns it.

A unit has a global id; a rank's shard is the concatenation of its units in ascending id. The plan is the
same for all layers. The functions are pure: the same inputs give the same plan on every rank.
"""

import hashlib
import heapq
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

Family = Literal["heads", "ffn", "vocab"]
FAMILIES: tuple[Family, ...] = get_args(Family)
Range = tuple[int, int]  # start, stop (exclusive)
Ranges = tuple[Range, ...]
Owners = NDArray[np.int64]  # owner of each unit: [units]

Weights = tuple[float, ...]  # one per family, in the order of FAMILIES

USUAL_WEIGHTS = (1 / 3, 2 / 3, 0.0)  # a plain FFN four times as wide as the model beside attention: 8 to 4 squares


@dataclass(frozen=True)
class UnitPlan:
    """Ownership of all units: per family and rank the ranges of global unit ids, ascending.

    vocab: as empty as no vocabulary is sharded. weights: each family's part of the matmul work, 0..1; a fact of the
    model, no part of the ownership.
    """

    heads: tuple[Ranges, ...]
    ffn: tuple[Ranges, ...]
    vocab: tuple[Ranges, ...] = ()
    weights: Weights = field(default=USUAL_WEIGHTS, compare=False)

    def __post_init__(self) -> None:
        if not self.vocab:
            object.__setattr__(self, "vocab", ((),) * len(self.heads))
        for family in FAMILIES:
            owned = getattr(self, family)
            if len(owned) != self.ranks:
                raise ValueError(f"plan: heads has {self.ranks} ranks, {family} has {len(owned)}")
            _check_partition(family, owned)

    @classmethod
    def from_counts(cls, heads: Sequence[int], ffn: Sequence[int], vocab: Sequence[int] = ()) -> "UnitPlan":
        """Return the plan in which rank i owns the next heads[i] heads, ffn[i] hidden units and vocab[i] rows."""
        return cls(_contiguous(heads), _contiguous(ffn), _contiguous(vocab))

    @classmethod
    def even(cls, ranks: int, heads: int, ffn: int, vocab: int = 0) -> "UnitPlan":
        """Return equal shares; the remainder goes to the first ranks."""
        return cls.from_speeds([1.0] * ranks, heads, ffn, vocab)

    @classmethod
    def from_speeds(cls, speeds: Sequence[float], heads: int, ffn: int, vocab: int = 0) -> "UnitPlan":
        """Return the plan with the least longest time; see `with_first_shares`."""
        plan = cls.empty(len(speeds))
        for family, units in zip(FAMILIES, (heads, ffn, vocab), strict=True):
            plan = plan.with_first_shares(family, units, speeds)
        return plan

    @classmethod
    def empty(cls, ranks: int) -> "UnitPlan":
        """Return the plan before any layer is known: no units."""
        return cls(((),) * ranks, ((),) * ranks)

    def with_first_shares(self, family: Family, units: int, speeds: Sequence[float]) -> "UnitPlan":
        """Return the plan with the first shares of a family, by relative speed; no speeds: equal ones.

        Every rank owns an FFN unit where there are enough, so that its speed stays measurable.
        """
        least = 1 if family == "ffn" and units >= self.ranks else 0
        counts = balanced_counts(units, speeds or [1.0] * self.ranks, least)
        return self._with({family: _contiguous(counts)})

    def rearranged(self, counts: Mapping[Family, Sequence[int]]) -> "UnitPlan":
        """Return a plan with these units by rank; families that are not named keep theirs.

        Only ranks above their new count release units, as many as they are above. Released units go first to their
        owner in the even plan; even counts give the even plan.
        """
        wanted = {family: tuple(counts.get(family, self.counts(family))) for family in FAMILIES}
        even = UnitPlan.even(self.ranks, *(sum(wanted[family]) for family in FAMILIES))
        if all(even.counts(family) == wanted[family] for family in FAMILIES):
            return replace(even, weights=self.weights)
        made = {f: _rearranged(self.owners(f), even.owners(f), each) for f, each in wanted.items()}
        return self._with({family: _ranges(owners, self.ranks) for family, owners in made.items()})

    def _with(self, owned: Mapping[Family, tuple[Ranges, ...]]) -> "UnitPlan":
        """Return the plan with other owners of these families."""
        every = {family: owned.get(family, self._owned(family)) for family in FAMILIES}
        return UnitPlan(every["heads"], every["ffn"], every["vocab"], self.weights)

    def _owned(self, family: Family) -> tuple[Ranges, ...]:
        owned: tuple[Ranges, ...] = getattr(self, family)
        return owned

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.heads)

    def owners(self, family: Family) -> Owners:
        """Return the owner of each unit: [units]."""
        owners = np.empty(self.total(family), dtype=np.int64)
        for rank in range(self.ranks):
            for start, stop in self.ranges(family, rank):
                owners[start:stop] = rank
        return owners

    def ranges(self, family: Family, rank: int) -> Ranges:
        """Return the ranges of unit ids that a rank owns."""
        return self._owned(family)[rank]

    def owned(self, family: Family, rank: int) -> tuple[int, ...]:
        """Return the unit ids that a rank owns, ascending."""
        return tuple(unit for start, stop in self.ranges(family, rank) for unit in range(start, stop))

    def counts(self, family: Family) -> tuple[int, ...]:
        """Return the number of units per rank."""
        return tuple(sum(stop - start for start, stop in self.ranges(family, r)) for r in range(self.ranks))

    def total(self, family: Family) -> int:
        """Return the number of units of a family."""
        return sum(self.counts(family))

    def share(self, rank: int) -> float:
        """Return a rank's share of the matmul work, 0..1; a family without units has no part in it."""
        weights = dict(zip(FAMILIES, self.weights, strict=True))
        totals = {family: self.total(family) for family in FAMILIES}
        whole = sum(weights[family] for family in FAMILIES if totals[family])
        shares = (weights[f] * self.counts(f)[rank] / totals[f] for f in FAMILIES if totals[f])
        return sum(shares) / whole if whole else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the JSON-ready form.

        Without a vocabulary it is that of earlier versions, whose checkpoints hold the hash.
        """
        return {f: self._owned(f) for f in FAMILIES if f != "vocab" or self.total(f)}

    @cached_property
    def hash(self) -> str:
        """16 hex digits; equal if and only if the plans are equal."""
        text = json.dumps(self.to_json(), separators=(",", ":"))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def balanced_counts(total: int, speeds: Sequence[float], least: int = 0) -> list[int]:
    """Return integers summing to `total`, each >= `least`, that minimise max_i count_i / speed_i.

    Floor of the fractional optimum; then each remaining unit goes to the rank that finishes soonest with it.
    Raises ValueError where `least` asks for more units than there are, or a speed is not above 0.
    """
    if least * len(speeds) > total:
        raise ValueError(f"{total} units cannot give {len(speeds)} ranks {least} each")
    if any(not speed > 0 for speed in speeds):
        raise ValueError(f"speeds must be > 0, got {list(speeds)}")
    whole = math.fsum(speeds)  # the same on every host and Python
    counts = [max(least, int(total * speed / whole)) for speed in speeds]
    _trim(counts, speeds, total, least)
    queue = [((count + 1) / speed, rank) for rank, (count, speed) in enumerate(zip(counts, speeds, strict=True))]
    heapq.heapify(queue)
    for _ in range(total - sum(counts)):
        _, rank = queue[0]
        counts[rank] += 1
        heapq.heapreplace(queue, ((counts[rank] + 1) / speeds[rank], rank))
    return counts


def _trim(counts: list[int], speeds: Sequence[float], total: int, least: int) -> None:
    """Take units back from the ranks that finish last, where the minimum assigned more than there are."""
    for _ in range(sum(counts) - total):
        last = max((r for r, count in enumerate(counts) if count > least), key=lambda r: counts[r] / speeds[r])
        counts[last] -= 1


def _contiguous(counts: Sequence[int]) -> tuple[Ranges, ...]:
    ranges: list[Ranges] = []
    start = 0
    for count in counts:
        ranges.append(((start, start + count),) if count else ())
        start += count
    return tuple(ranges)


def _rearranged(owners: Owners, even: Owners, counts: Sequence[int]) -> Owners:
    """Return owners with these counts: [units].

    Over-full ranks first release units that are not theirs in the even plan; released units go first to their
    even-plan owner.
    """
    new, wanted = owners.copy(), np.asarray(counts)
    for rank in np.flatnonzero(np.bincount(owners, minlength=len(counts)) > wanted):
        mine = np.flatnonzero(owners == rank)
        kept_first = np.concatenate([mine[even[mine] == rank], mine[even[mine] != rank]])
        new[kept_first[wanted[rank] :]] = -1
    room = wanted - np.bincount(new[new >= 0], minlength=len(counts))
    for rank in np.flatnonzero(room > 0):
        returned = np.flatnonzero((new < 0) & (even == rank))[: room[rank]]
        new[returned] = rank
        room[rank] -= len(returned)
    new[new < 0] = np.repeat(np.arange(len(counts)), room)
    return new


def _ranges(owners: Owners, ranks: int) -> tuple[Ranges, ...]:
    """Return each rank's units as ranges, ascending."""
    bounds = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(owners)]
    ranges: list[list[Range]] = [[] for _ in range(ranks)]
    for start, stop in pairwise(bounds):
        if stop > start:
            ranges[int(owners[start])].append((start, stop))
    return tuple(map(tuple, ranges))


@dataclass(frozen=True)
class Transfer:
    """Units [start, stop) of a family that leave one rank for another."""

    family: Family
    source: int
    target: int
    start: int
    stop: int

    @property
    def units(self) -> int:
        """Number of units."""
        return self.stop - self.start


def transfers(before: UnitPlan, after: UnitPlan) -> tuple[Transfer, ...]:
    """Return the transfers between two plans, by family in ascending unit id; the same on every rank."""
    found = []
    for family in FAMILIES:
        old, new = before.owners(family), after.owners(family)
        pairs = old * before.ranks + new
        bounds = [0, *(np.flatnonzero(np.diff(pairs)) + 1).tolist(), len(pairs)]
        for start, stop in pairwise(bounds):
            if stop > start and old[start] != new[start]:
                found.append(Transfer(family, int(old[start]), int(new[start]), start, stop))
    return tuple(found)


def _check_partition(family: str, owners: tuple[Ranges, ...]) -> None:
    """Raise ValueError unless the ranges of all ranks cover 0 .. total-1 once, each rank's ascending."""
    for rank, ranges in enumerate(owners):
        flat = [bound for pair in ranges for bound in pair]
        if flat != sorted(flat) or any(start >= stop for start, stop in ranges):
            raise ValueError(f"plan: {family} of rank {rank} is not ascending: {ranges}")
    position = 0
    for start, stop in sorted(pair for ranges in owners for pair in ranges):
        if start != position:
            raise ValueError(f"plan: {family} unit {min(start, position)} is owned twice or by no rank")
        position = stop
