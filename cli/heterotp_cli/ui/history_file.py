"""Follows history.jsonl: the lines that were added since the last look, a bounded part of them at a time."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MOST_READ = 16 << 20  # bytes of one look; a longer history takes several
MOST_LINE = 16 << 20  # bytes: a longer line is left out


class HistoryFile:
    """Reads a growing file from where it stopped; a file that was replaced or cut is read anew."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0
        self._inode: int | None = None
        self._rest = b""

    def look(self) -> tuple[bool, list[dict[str, Any]]]:
        """Return whether the file began anew, and the entries that were added; damaged lines are left out."""
        try:
            with self._path.open("rb") as file:
                state = os.fstat(file.fileno())
                anew = self._inode not in (None, state.st_ino) or state.st_size < self._offset
                if anew:
                    self._offset, self._rest = 0, b""
                self._inode = state.st_ino
                file.seek(self._offset)
                data = file.read(MOST_READ)
        except OSError:
            return False, []
        self._offset += len(data)
        return anew, list(_entries(self._lines(data)))

    @property
    def behind(self) -> bool:
        """Whether the file holds more than was read."""
        try:
            return self._path.stat().st_size > self._offset
        except OSError:
            return False

    def _lines(self, data: bytes) -> list[bytes]:
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest if len(rest) <= MOST_LINE else b""
        return lines


def _entries(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            entry = json.loads(line)
            entry["iteration"] = int(entry["iteration"])
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
            continue
        yield entry
