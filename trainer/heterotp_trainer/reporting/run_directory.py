"""The files that rank 0 writes for readers outside: a local run's directory, and the termination message of a pod."""

import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from heterotp_api.formatting import utc_time
from heterotp_api.last_words import MAX_BYTES
from heterotp_api.names import JOURNAL_FILE
from heterotp_api.trainer_status import TrainerStatus

from heterotp_trainer.reporting.journal import Journal

STATUS_SECONDS = 0.5
MOST_LINE = 4 << 20  # bytes, of an iteration in the history
POINTS_IN_TIME = ("startedAt", "decisionAt")  # four digits do not tell them apart


class RunDirectory:
    """Writes status.json every STATUS_SECONDS, journal.json then where it changed, history.jsonl line by line, and
    report.json at the end. A killed rank 0 so leaves what happened until then.
    """

    def __init__(self, path: Path, status: Callable[[], str], journal: Journal) -> None:
        self._path, self._status = path, status
        self._journal, self._written = journal, 0
        path.mkdir(parents=True, exist_ok=True)
        self._history = (path / "history.jsonl").open("a", encoding="utf-8", buffering=1)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="status-file", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        told = False
        while not self._stop.wait(STATUS_SECONDS):
            try:
                self._replace("status.json", self._status())
                self._write_journal()
            except Exception as error:  # a full disk, a removed directory: the next status may succeed
                if not told:
                    _tell(error)
                told = True

    def _write_journal(self) -> None:
        changes = self._journal.changes
        if changes != self._written:
            self._replace(JOURNAL_FILE, self._journal.document().model_dump_json(by_alias=True) + "\n")
            self._written = changes

    def _replace(self, name: str, text: str) -> None:
        aside = self._path / f".{name}"
        aside.write_text(text, encoding="utf-8")
        aside.replace(self._path / name)

    def newest_iteration(self) -> int:
        """Return the iteration of the history's last line, which another rank may have written; 0: there is none."""
        with (self._path / "history.jsonl").open("rb") as history:
            history.seek(max(0, history.seek(0, os.SEEK_END) - MOST_LINE))
            lines = history.read().splitlines()
        for line in reversed(lines):
            with suppress(ValueError, KeyError, TypeError):
                return int(json.loads(line)["iteration"])
        return 0

    def give_up(self) -> None:
        """Write no more, neither status nor report, but the journal, after which that of the next leader goes on."""
        self._stop.set()
        self._thread.join()
        with suppress(OSError):
            self._write_journal()
        self._history.close()

    def append(self, line: dict[str, Any]) -> None:
        """Append one iteration to the history."""
        self._history.write(json.dumps(_finite(line), allow_nan=False) + "\n")

    def close(self, report: dict[str, Any]) -> None:
        """Write the last status and the report."""
        self._stop.set()
        self._thread.join()
        self._replace("status.json", self._status())
        self._write_journal()
        self._replace("report.json", json.dumps(_finite(report), indent=2, allow_nan=False) + "\n")
        self._history.close()


def _tell(error: Exception) -> None:
    text = f"the status was not written: {type(error).__name__}: {error}; trying again without further lines like this"
    print(f"{utc_time(time.time())} {text}", file=sys.stderr, flush=True)


def last_words(status: TrainerStatus) -> str:
    """Return the status as JSON with four digits; without ranks and injections where it exceeds MAX_BYTES."""
    body = _rounded(status.model_dump(mode="json", by_alias=True, exclude_none=True))
    text = json.dumps(body, separators=(",", ":"))
    if len(text.encode()) <= MAX_BYTES:
        return text
    return json.dumps({**body, "ranks": [], "injections": []}, separators=(",", ":"))


def _finite(value: Any) -> Any:
    """Return the value with None in place of NaN and infinity, which JSON lacks."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: inner if key in POINTS_IN_TIME else _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value
