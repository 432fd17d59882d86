"""MIG: how many columns a straggler gives away, lossless and every iteration anew (algorithms, section 3)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from heterotp_api.policy import Mig

from heterotp_trainer.balancing.history import Observation
from heterotp_trainer.balancing.predict import iteration_seconds
from heterotp_trainer.balancing.work import Costs, Reliefs, Taken
from heterotp_trainer.balancing.zero import columns_for, relief

LEVELS = 32  # how finely the common finishing time is searched
MOST = 0.9  # of a rank's columns: some stay, or its speed could not be seen any more


@dataclass(frozen=True)
class Priced:
    """A candidate plan and the seconds that an iteration would take under it."""

    reliefs: Reliefs
    receivers: tuple[tuple[int, float], ...]
    seconds: float


def receivers_of(costs: Costs, seen: Observation, stragglers: Collection[int]) -> tuple[tuple[int, float], ...]:
    """Return the ranks that are no stragglers, ascending, each with its speed (1: the fastest of them).

    Speed is work by time: shards may be uneven. Of a rank without work nobody knows it; it counts as the fastest.
    """
    free = [rank for rank in range(len(seen.full)) if rank not in stragglers]
    work = {rank: sum(c.operations(rank, c.columns[rank]) for c in costs.classes) for rank in free}
    speeds = {rank: work[rank] / float(seen.full[rank]) for rank in free if work[rank] and seen.full[rank] > 0}
    fastest = max(speeds.values(), default=1.0)
    return tuple((rank, speeds.get(rank, fastest) / fastest) for rank in free)


def slowest_first(seen: Observation, ranks: Collection[int]) -> list[int]:
    """Return ranks by T, the slowest first (the paper's descendSort)."""
    return sorted(ranks, key=lambda rank: (-float(seen.total[rank]), rank))


def migrate(
    costs: Costs, seen: Observation, stragglers: Collection[int], settings: Mig, base_wait: float
) -> Priced | None:
    """Return the cheapest plan that brings all stragglers down to one common time; None: none beats doing nothing."""
    senders = slowest_first(seen, stragglers)
    receivers = receivers_of(costs, seen, stragglers)
    if not senders or not receivers:
        return None
    lowest, highest = float(min(seen.total)), float(max(seen.total))
    levels = [lowest + (highest - lowest) * step / LEVELS for step in range(LEVELS)]
    priced = [_at_level(costs, seen, senders, receivers, settings, level, base_wait) for level in levels]
    best = min(priced, key=lambda plan: plan.seconds)
    nothing = iteration_seconds(costs, seen, {}, base_wait=base_wait)
    return best if best.seconds < nothing and best.reliefs else None


def _at_level(
    costs: Costs,
    seen: Observation,
    senders: Sequence[int],
    receivers: tuple[tuple[int, float], ...],
    settings: Mig,
    level: float,
    base_wait: float,
) -> Priced:
    reliefs = {}
    for rank in senders:
        share = relief(float(seen.total[rank]), float(seen.full[rank]), level)
        counts = columns_for(costs, rank, share, MOST, settings.grain)
        if any(counts):
            reliefs[rank] = tuple(Taken(0, count) for count in counts)
    seconds = iteration_seconds(costs, seen, reliefs, receivers, settings.primitive, base_wait)
    return Priced(reliefs, receivers, seconds)
