"""What is kept of a rank whose work or units change back and forth: see balancing/damping.py."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Alternation:
    """The last change for one rank, and how often changes were reversed soon.

    Points in time are numbers of observations (History.count). slower: whether the change was made because the rank was
    slower. level: reversals that came soon. last_at: when a change was last made, or one back was last due. due_since:
    since when a change back is due without interruption; None: none is due.
    """

    rank: int
    slower: bool
    level: int
    last_at: int
    due_since: int | None = None


Alternations = tuple[Alternation, ...]  # by rank, ascending; a rank for which nothing ever changed has none
