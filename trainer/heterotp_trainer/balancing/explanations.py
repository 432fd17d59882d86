"""Ranks, sizes and times in the sentences that say why something was decided."""

from collections.abc import Sequence

NAMED = 4  # ranks that a reason names one by one


def ranks_named(ranks: Sequence[int]) -> str:
    """Return `rank 2`, `ranks 1, 2`, or the first of them and how many more."""
    shown = ", ".join(str(rank) for rank in ranks[:NAMED])
    more = f" and {len(ranks) - NAMED} more" if len(ranks) > NAMED else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"


def seconds_named(seconds: float) -> str:
    """Return seconds with three digits."""
    return f"{seconds:.3g} s"


def size_named(nbytes: float) -> str:
    """Return bytes in the unit that fits, 1024 each."""
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1024
    return f"{nbytes:.3g} GiB"
