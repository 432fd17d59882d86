"""Which rank mirrors which: pure decisions, the same on every rank."""

from collections.abc import Sequence


def buddies(nodes: Sequence[str]) -> tuple[int, ...]:
    """Return by rank the rank that mirrors it: the next one on another node, else the next one; none alone.

    nodes: where each rank runs. A rank is never its own buddy.
    """
    count = len(nodes)
    return tuple(_buddy(rank, nodes) for rank in range(count)) if count > 1 else ()


def _buddy(rank: int, nodes: Sequence[str]) -> int:
    others = [(rank + step) % len(nodes) for step in range(1, len(nodes))]
    return next((other for other in others if nodes[other] != nodes[rank]), others[0])


def wards(mirrors: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return the ranks that a rank mirrors, ascending; mirrors: what `buddies` returned."""
    return tuple(other for other, buddy in enumerate(mirrors) if buddy == rank)
