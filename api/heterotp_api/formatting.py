"""Lists in sentences that people read: some of the items, and how many more there are; points in time."""

from collections.abc import Sequence
from datetime import UTC, datetime


def listed(items: Sequence[str], most: int | None = None, separator: str = ", ") -> str:
    """Return `a`, `a and b`, `a, b and c`; of more than `most` items the first ones and `and N more`.

    separator: what stands between items; with another one than a comma the last item is joined by it, too.
    """
    shown = list(items if most is None else items[:most])
    more = len(items) - len(shown)
    if more:
        return f"{separator.join(shown)} and {more} more" if shown else f"{more} more"
    if separator == ", " and len(shown) > 1:
        return f"{', '.join(shown[:-1])} and {shown[-1]}"
    return separator.join(shown)


def ranks_listed(ranks: Sequence[int], most: int = 4) -> str:
    """Return `rank 3`, `ranks 1 and 3`, or the first `most` ranks and `and N more`."""
    return f"rank{'s' if len(ranks) > 1 else ''} {listed([str(rank) for rank in ranks], most)}"


def utc_time(seconds: float) -> str:
    """Return unix seconds as UTC in ISO 8601, e.g. `2026-01-31T09:05:00Z`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def one_line(text: str, most: int | None = None) -> str:
    """Return a text of unknown origin as one printable line, cut to `most` characters."""
    if most is not None and len(text) > most:
        text = text[: most - 3] + "..."
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def stall_text(since: str, where: str) -> str:
    """Return the sentence about a gang that stalls; since: `for 12 s`, or `since` a time; where: of its ranks."""
    return f"no iteration {since}" + (f"; {where}" if where else "")
