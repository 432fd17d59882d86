"""Who is left of a gang that may lose ranks, in words for people."""

from collections.abc import Iterable

from heterotp_api.formatting import one_line, ranks_listed
from heterotp_api.trainer_status import LostRank, TrainerGang

MOST_WHY = 120  # characters


def gang_text(gang: TrainerGang | None) -> str:
    """Return `3/4 ranks live, rank 2 left at iteration 41 (why), its work is with ranks 0, 1 and 3`; empty: all live.

    Ranks have the numbers that they started with. A rank's words are a stranger's.
    """
    if gang is None or (not gang.lost and gang.live >= gang.started and not gang.unprotected):
        return ""
    parts = [f"{gang.live}/{gang.started} ranks live", *map(_left, gang.lost)]
    if gang.lost:
        whose = "its" if len(gang.lost) == 1 else "their"
        parts.append(f"{whose} work is with {_named(gang.members, gang.live)}")
    if gang.unprotected:
        parts.append(f"the units of {gang.unprotected} have no mirror: the loss of one ends the run")
    return ", ".join(parts)


def _left(lost: LostRank) -> str:
    why = one_line(lost.why, MOST_WHY)
    return f"rank {lost.rank} left at iteration {lost.iteration}{f' ({why})' if why else ''}"


def _named(members: Iterable[int], live: int) -> str:
    known = sorted(set(members))
    return ranks_listed(known) if len(known) == live else "the others"
