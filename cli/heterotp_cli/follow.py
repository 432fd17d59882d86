"""Reads the files of a run: the live status, the history, the last lines of a log."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heterotp_api.last_words import RankFailure, rank_failure
from heterotp_api.trainer_status import TrainerStatus
from pydantic import ValidationError

from heterotp_cli.logs import earlier
from heterotp_cli.workdir import HISTORY, STATUS, last_words_file

TAIL_BYTES = 256 * 1024  # that are searched for the last lines of a log


def read_status(workdir: Path, attempt: int) -> TrainerStatus | None:
    """Return this attempt's status; None before rank 0 has written one."""
    try:
        status = TrainerStatus.model_validate_json((workdir / STATUS).read_bytes())
    except (OSError, ValidationError):
        return None
    return status if status.attempt == attempt else None


def read_failure(workdir: Path, pod: str) -> RankFailure | None:
    """Return the document that the launcher of a pod left about the rank that failed; None without one."""
    try:
        return rank_failure(last_words_file(workdir, pod).read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None


@dataclass(frozen=True)
class History:
    """One entry per iteration, ascending; an iteration repeated after a resume replaces the earlier one."""

    iterations: tuple[int, ...] = ()
    entries: tuple[dict[str, Any], ...] = field(default=())

    def __len__(self) -> int:
        return len(self.iterations)


def read_history(workdir: Path) -> History:
    """Return the history without incomplete lines, which a killed writer may leave."""
    try:
        text = (workdir / HISTORY).read_text(encoding="utf-8")
    except OSError:
        return History()
    by_iteration: dict[int, dict[str, Any]] = {}
    for line in text.splitlines():
        try:
            entry = json.loads(line)
            by_iteration[int(entry["iteration"])] = entry
        except (ValueError, KeyError, TypeError):
            continue
    order = sorted(by_iteration)
    return History(tuple(order), tuple(by_iteration[i] for i in order))


def tail(log: Path, lines: int) -> list[str]:
    """Return the last lines of a log that are not blank, also those before its last rotation."""
    found = _end_of(log)
    if len(found) < lines and (before := earlier(log)) is not None:
        found = _end_of(before) + found
    return found[-lines:]


def _end_of(file: Path) -> list[str]:
    """Return the lines that are not blank of the last TAIL_BYTES of a file; none where it cannot be read."""
    try:
        with file.open("rb") as opened:
            start = max(0, opened.seek(0, os.SEEK_END) - TAIL_BYTES)
            opened.seek(start)
            text = opened.read().decode("utf-8", "replace")
    except OSError:
        return []
    whole = text.splitlines()[1 if start else 0 :] or [text]  # the first line may have lost its beginning
    return [line.rstrip() for line in whole if line.strip()]
