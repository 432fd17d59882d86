"""What the page of a run shows, as plain numbers: pure functions of the history and the report."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from heterotp_cli.follow import History

MOST_COLUMNS, FEWEST_COLUMNS, MOST_CELLS = 600, 60, 200_000  # of the heat map: they bound the size of the page
PHASES = ("matmul", "unit", "fixed", "migrate", "data", "control", "wait")
FACTS = ("job", "state", "attempt", "iterations", "epochs", "trainLoss", "testLoss", "testAccuracy", "strategy")
TIMES = ("iterationSeconds", "limitIterationSeconds", "savedSeconds", "deletedShare", "emulated", "reason")
OF_RANK = ("rank", "group", "share", "prunedRatio", "migratedRatio", "slowdown", "injectedSlowdown")
OF_DECISION = ("attempt", "iteration", "time", "decisionId", "strategy", "cause", "reason")


def content(history: History, report: dict[str, Any]) -> dict[str, Any]:
    """Return the page's document; every number in it is finite or None."""
    ranks = report.get("ranks") or []
    columns = _columns(len(history), len(ranks))
    entries = [history.entries[column] for column in columns]
    document = {
        **{key: report.get(key) for key in (*FACTS, *TIMES)},
        "iteration": [history.iterations[column.stop - 1] for column in columns],
        "seconds": [_median(_measured(part)) for part in entries],
        "loss": [_last(part, "loss") for part in entries],
        "accuracy": [_last(part, "accuracy") for part in entries],
        "chi": _carried([[_chi(part, rank) for part in entries] for rank in range(len(ranks))]),
        "lost": [[lost_share(part, rank) for part in entries] for rank in range(len(ranks))],
        "ranks": [_rank(rank, history.entries) for rank in ranks],
        "decisions": [{key: made.get(key) for key in OF_DECISION} for made in report.get("decisions") or []],
        "leftOut": (report.get("leftOut") or {}).get("decisions") or 0,
    }
    found: dict[str, Any] = finite(document)
    return found


def _columns(length: int, ranks: int) -> list[slice]:
    """Return as many equal parts of the history as the page draws."""
    most = min(MOST_COLUMNS, max(FEWEST_COLUMNS, MOST_CELLS // max(1, ranks)), length)
    return [slice(i * length // most, (i + 1) * length // most) for i in range(most)]


def _measured(entries: Iterable[dict[str, Any]]) -> list[float]:
    return [e["iterationSeconds"] for e in entries if e.get("measured") and e.get("iterationSeconds") is not None]


def _median(values: Sequence[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None


def _last(entries: Sequence[dict[str, Any]], key: str) -> float | None:
    known = [entry[key] for entry in entries if entry.get(key) is not None]
    return known[-1] if known else None


def _chi(entries: Sequence[dict[str, Any]], rank: int) -> float | None:
    """Return the largest slow-down of a rank in these iterations; None where none was computed."""
    rows = [entry["ranks"][rank] for entry in entries if rank < len(entry.get("ranks") or [])]
    known = [row["chi"] for row in rows if row.get("chi") is not None]
    return round(max(known), 2) if known else None


def lost_share(entries: Sequence[Mapping[str, Any]], rank: int) -> float | None:
    """Return the part of these iterations' time that others lost to a rank, 0..1; None where it is not known."""
    lost, took = lost_seconds(entries, rank)
    return short(lost / took) if took else None


def lost_seconds(entries: Sequence[Mapping[str, Any]], rank: int) -> tuple[float, float]:
    """Return what others lost to a rank, and the time of the iterations of which that is known, seconds."""
    lost = took = 0.0
    for entry in entries:
        rows = entry.get("ranks")
        row = rows[rank] if isinstance(rows, list) and rank < len(rows) else None
        blamed = row.get("blamed") if isinstance(row, dict) else None
        seconds = entry.get("iterationSeconds")
        if isinstance(blamed, int | float) and isinstance(seconds, int | float):
            lost, took = lost + blamed, took + seconds
    return (lost, took) if math.isfinite(lost + took) else (0.0, 0.0)


def short(value: float) -> float:
    """Return a number with two digits behind the point, in as few characters as JSON needs."""
    rounded = round(value, 2)
    return int(rounded) if rounded == int(rounded) else rounded


def _carried(lines: list[list[float | None]]) -> list[list[float | None]]:
    """Return the lines with each gap filled by the value before it: chi is computed once per window only."""
    for line in lines:
        for i in range(1, len(line)):
            if line[i] is None:
                line[i] = line[i - 1]
    return lines


def _rank(row: dict[str, Any], entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a rank's row: its values at the end, and its mean seconds per phase in the measured iterations."""
    number = row["rank"]
    held = [e["ranks"][number] for e in entries if e.get("measured") and number < len(e.get("ranks") or [])]
    phases = {phase: _mean([r[phase] for r in held if r.get(phase) is not None]) for phase in PHASES}
    return {**{key: row.get(key) for key in OF_RANK}, **phases}


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def finite(value: Any) -> Any:
    """Return the value with None in place of numbers that JSON lacks."""
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
