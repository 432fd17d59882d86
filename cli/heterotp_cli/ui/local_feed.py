"""What the page shows of a run directory: its files, followed while they grow."""

import os
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from heterotp_api.names import JOURNAL_FILE
from heterotp_api.run_journal import RunJournal

from heterotp_cli import workdir
from heterotp_cli.journal import EARLIER, read_journal
from heterotp_cli.ui.columns import MOST_RANKS, Columns, RankTimes, rows_of
from heterotp_cli.ui.document import Picture
from heterotp_cli.ui.history_file import HistoryFile
from heterotp_cli.verbs.explanation import explain
from heterotp_cli.verbs.local import LocalTarget
from heterotp_cli.verbs.view import ENDED, places_of

MOST_LOOKS = 8  # parts of a long history that are read before the page is shown
Read = TypeVar("Read")


class Cached(Generic[Read]):
    """What was read of files, until one of them changes."""

    def __init__(self, read: Callable[[], Read], *paths: Path) -> None:
        self._read, self._paths = read, paths
        self._seen: list[object] | None = None
        self._value: Read | None = None

    def get(self) -> Read | None:
        """Return the value, read again where a file has changed."""
        seen = [_stamp(path) for path in self._paths]
        if seen != self._seen:
            self._value, self._seen = self._read(), seen
        return self._value


class LocalFeed:
    """A run directory; `look` is called by one thread at a time."""

    def __init__(self, target: LocalTarget) -> None:
        assert target.place is not None
        self.target, place = target, target.place
        self._history = HistoryFile(place / workdir.HISTORY)
        self._journal = Cached(lambda: read_journal(place), place / JOURNAL_FILE, place / EARLIER)
        self._report = Cached(lambda: workdir.read_json(place / workdir.REPORT), place / workdir.REPORT)
        self._groups = Cached(lambda: groups_of(place), place / workdir.RUN)
        self._begin(0)

    def _begin(self, ranks: int) -> None:
        self._columns, self._times = Columns(ranks), RankTimes(ranks)
        self._newest: dict[str, Any] | None = None
        self._key = secrets.token_hex(4)

    def look(self) -> Picture:
        """Return the run as its files have it now."""
        report = self._report.get() or {}
        view = self.target.look()
        if report.get("state") in ENDED:  # also while the command that writes it still holds the lock
            view = replace(view, state=str(report["state"]))
        groups = self._groups.get() or []
        for _ in range(MOST_LOOKS):
            self._follow(len(groups))
            if not self._history.behind:
                break
        journal = self._journal.get() or RunJournal()
        return Picture(
            view,
            self._columns,
            self._times,
            groups,
            self._key,
            explain(view, time.time(), self.target.command("policy")),
            self._newest,
            {**report, "state": view.state} if report and view.ended else None,
            [made.model_dump(by_alias=True) for made in journal.decisions],
            journal.left_out.decisions,
            note="a long history is being read" if self._history.behind else "",
        )

    def _follow(self, ranks: int) -> None:
        """Add what the history has more; ranks: of the run, 0: not known."""
        anew, entries = self._history.look()
        ranks = min(MOST_RANKS, ranks or max((len(rows_of(entry)) for entry in entries), default=self._columns.ranks))
        if anew or ranks != self._columns.ranks:
            self._begin(ranks)
            if not anew:
                self._history = HistoryFile(self._directory / workdir.HISTORY)
                _, entries = self._history.look()
        for entry in entries:
            self._columns.add(entry)
            self._times.add(entry)
            self._newest = entry

    @property
    def _directory(self) -> Path:
        assert self.target.place is not None
        return self.target.place


def groups_of(place: Path) -> list[str]:
    """Return the worker group of each rank by run.json; empty in a directory of an older version."""
    listed = (workdir.read_json(place / workdir.RUN) or {}).get("workerGroups") or ()
    return [each.group for each in places_of(listed)[:MOST_RANKS]]


def _stamp(path: Path) -> object:
    try:
        state = os.stat(path)
    except OSError:
        return None
    return state.st_ino, state.st_size, state.st_mtime_ns
