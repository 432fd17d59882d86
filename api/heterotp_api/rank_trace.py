"""Traces of iterations: what a control document asks for, and what each traced rank leaves in the run directory.

traces/UID/rank-N.json        by torch.profiler: a Chrome trace of the rank alone, in unix time
traces/UID/rank-N.meta.json   a RankTrace, written last: the rank has ended its trace, or failed to
"""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from heterotp_api.base import Model
from heterotp_api.strategy_blocks import Rank, unique

TRACES = "traces"  # folder of a run directory
MOST_STEPS = 20
MOST_BYTES = 128 << 20  # of the profiler's file of a rank
MOST_EVENTS = 100_000  # changes of phase, and meetings, of a rank


class TraceRequest(Model):
    """Iterations to trace, once: the `steps` after the boundary at which the document is in force.

    uid: tells requests apart; one that was carried out is not carried out again. ranks: None: all of them.
    """

    uid: str = Field(pattern="^[a-z0-9-]{1,64}$")
    steps: int = Field(ge=1, le=MOST_STEPS)
    ranks: Annotated[list[Rank], Field(min_length=1, max_length=16384), AfterValidator(unique)] | None = None

    def wants(self, rank: int) -> bool:
        """Return whether a rank is to be traced."""
        return self.ranks is None or rank in self.ranks


class RankTrace(Model):
    """What a rank adds to its profiler's file; times in nanoseconds of its monotonic clock.

    error: why there is no such file, empty where there is. boot: what identifies the boot of its machine. unix_ns: what
    the unix clock showed at monotonic_ns. first: the first traced iteration; bounds: the begin of each traced iteration
    and the end of the last one. phases: phases and when they began. arrived, completed: of each collective that all
    ranks meet in, seconds.
    """

    rank: int
    error: str = ""
    boot: str = ""
    unix_ns: int = 0
    monotonic_ns: int = 0
    first: int = 0
    bounds: tuple[int, ...] = ()
    phases: tuple[tuple[int, str], ...] = ()
    arrived: tuple[float, ...] = ()
    completed: tuple[float, ...] = ()


def profile_file(folder: Path, rank: int) -> Path:
    """Return the profiler's file of a rank in the folder of a trace."""
    return folder / f"rank-{rank}.json"


def meta_file(folder: Path, rank: int) -> Path:
    """Return the file with a rank's RankTrace in the folder of a trace."""
    return folder / f"rank-{rank}.meta.json"
