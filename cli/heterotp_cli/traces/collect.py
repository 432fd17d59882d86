"""Waits for the traces of ranks in a run directory, and reads them."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from heterotp_api.formatting import ranks_listed
from heterotp_api.rank_trace import RankTrace, meta_file, profile_file
from pydantic import ValidationError

from heterotp_cli.errors import Failed
from heterotp_cli.traces.merge import Traced

POLL_SECONDS = 0.1


def await_ranks(
    folder: Path,
    ranks: Sequence[int],
    ended: Callable[[], bool],
    deadline_seconds: float,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    """Wait until all ranks have ended their traces; raise Failed where the run ends before, or at the deadline."""
    begun = clock()
    while missing := [rank for rank in ranks if not meta_file(folder, rank).exists()]:
        over = ended()
        if over and all(meta_file(folder, rank).exists() for rank in missing):
            return
        if over:
            raise Failed(f"the run has ended before {ranks_listed(missing)} had written a trace")
        if clock() - begun > deadline_seconds:
            why = "a full disk, an older trainer, or long iterations (then --wait)? Their logs may say why"
            raise Failed(f"{ranks_listed(missing)} wrote no trace within {deadline_seconds:.0f} s: {why}")
        sleep(POLL_SECONDS)


def read_rank(folder: Path, rank: int, group: str) -> Traced:
    """Return what a rank has left; raise Failed where it failed, or its files are damaged."""
    try:
        meta = RankTrace.model_validate_json(meta_file(folder, rank).read_bytes())
        if meta.error:
            raise Failed(f"rank {rank}: {meta.error}")
        body = json.loads(profile_file(folder, rank).read_bytes())
        return Traced(meta, group, int(body["baseTimeNanoseconds"]), _events(body))
    except (OSError, ValueError, KeyError, TypeError, ValidationError) as error:
        what = error.strerror if isinstance(error, OSError) else "it is not complete: is the disk full?"
        raise Failed(f"rank {rank}: its trace cannot be read: {what}") from None


def _events(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in body["traceEvents"] if isinstance(event, dict)]
