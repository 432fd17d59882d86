"""Results, one JSON line each, written at once, so that a stopped bench continues where it was."""

import json
from pathlib import Path
from typing import Any

RESULTS = "results.jsonl"


class Store:
    """The results so far, by key."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / RESULTS
        self.results: dict[str, dict[str, Any]] = {}
        self._torn = False  # whether the last line is incomplete
        if self._path.exists():
            text = self._path.read_text(encoding="utf-8")
            self._torn = bool(text) and not text.endswith("\n")
            for line in text.splitlines():
                self._take(line)

    def _take(self, line: str) -> None:
        try:
            entry = json.loads(line)
            self.results[entry["key"]] = entry
        except (ValueError, KeyError, TypeError):  # an incomplete line of a killed bench
            return

    def __contains__(self, key: object) -> bool:
        return key in self.results

    def get(self, key: str) -> dict[str, Any] | None:
        """Return a result, None where it was not measured."""
        return self.results.get(key)

    def add(self, key: str, **result: Any) -> None:
        """Add a result."""
        entry = {"key": key, **result}
        self.results[key] = entry
        with self._path.open("a", encoding="utf-8") as file:
            file.write(("\n" if self._torn else "") + json.dumps(entry) + "\n")
        self._torn = False
