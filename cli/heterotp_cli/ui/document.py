"""The document of the live page: that of report.html, with the part that a browser does not have yet. Pure."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from heterotp_api.formatting import one_line
from heterotp_api.strategies import Strategy

from heterotp_cli.page.content import FACTS, OF_DECISION, TIMES, finite
from heterotp_cli.ui.columns import Columns, Entry, RankTimes, number, rows_of
from heterotp_cli.verbs.view import JobView, RankView, started

MOST_TEXT, MOST_EXPLANATION = 1024, 8192  # characters of a text of the job, of what `explain` says


@dataclass(frozen=True)
class Known:
    """What a browser has: the key of its columns, how many they are, the mark of its decisions and of its document."""

    key: str = ""
    columns: int = 0
    decided: str = ""
    mark: str = ""


@dataclass(frozen=True)
class Picture:
    """A job at one moment.

    groups: worker group of each rank. key: of the source, another one after a new start of it. explanation: as
    `explain` prints it. newest: the entry of the newest iteration. facts: of the job's report, where it has ended.
    note: why the page is not up to date.
    """

    view: JobView
    columns: Columns
    times: RankTimes
    groups: Sequence[str] = ()
    key: str = ""
    explanation: str = ""
    newest: Entry | None = None
    facts: Mapping[str, Any] | None = None
    decisions: Sequence[Mapping[str, Any]] = ()
    left_out: int = 0
    controls: bool = True
    note: str = ""


def document(picture: Picture, known: Known) -> dict[str, Any] | None:
    """Return what a browser lacks; None where it has all of it. Every number is finite or None."""
    key = f"{picture.key}.{picture.columns.epoch}"
    first = min(known.columns, len(picture.columns)) if key == known.key else 0
    first = max(0, first - 1)  # the last column may have grown
    decided = _digest([picture.decisions, picture.left_out])
    made = {
        **{name: _text(value) for name, value in (picture.facts or facts(picture.view)).items()},
        **picture.columns.document(first),
        "ranks": ranks(picture),
        "decisions": None if decided == known.decided else [_decision(each) for each in picture.decisions],
        "leftOut": picture.left_out,
        "live": {
            "key": key,
            "first": first,
            "decided": decided,
            "running": not picture.view.ended,
            "controls": picture.controls and not picture.view.ended,
            "strategies": list(get_args(Strategy)),
            "stall": _text(picture.view.stall),
            "explanation": one_line(picture.explanation, MOST_EXPLANATION),
            "note": _text(picture.note),
        },
    }
    found: dict[str, Any] = finite(made)
    found["live"]["mark"] = _digest(found)
    return None if (key, found["live"]["mark"]) == (known.key, known.mark) else found


def facts(view: JobView) -> dict[str, Any]:
    """Return the headline of a job in the keys of report.json."""
    median = view.iteration_seconds
    found = {
        "job": view.name,
        "state": view.state or "new",
        "attempt": view.attempt,
        "iterations": view.iteration,
        "epochs": view.epoch,
        "trainLoss": view.loss,
        "testAccuracy": view.accuracy,
        "strategy": view.strategy,
        "iterationSeconds": None if median is None else {"median": median},
        "limitIterationSeconds": view.limit_iteration_seconds,
        "savedSeconds": view.saved_seconds,
        "emulated": view.emulated,
        "reason": view.reason,
    }
    return {name: found.get(name) for name in (*FACTS, *TIMES)}


def ranks(picture: Picture) -> list[dict[str, Any]]:
    """Return one row per rank: what the newest iteration has of it, else what the job's status has."""
    shown = {each.rank: each for each in picture.view.ranks}
    newest = enumerate(rows_of(picture.newest) if picture.newest is not None else [])
    rows = {started(position, picture.view.live): row for position, row in newest}
    found = []
    for rank in range(picture.columns.ranks):
        row = rows.get(rank, {})
        view = shown.get(rank) or RankView(rank, group=_group(picture.groups, rank))
        found.append(
            {
                "rank": rank,
                "group": _text(view.group),
                "share": _known_number(row.get("share"), view.share),
                "prunedRatio": _known_number(row.get("pruned"), view.pruned_ratio),
                "migratedRatio": _known_number(row.get("migrated"), view.migrated_ratio),
                "slowdown": _known_number(row.get("chi"), view.slowdown),
                "injectedSlowdown": _known_number(row.get("injected"), view.injected_slowdown),
                **picture.times.of(rank),
            }
        )
    return found


def _decision(made: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _text(made.get(key)) for key in OF_DECISION}


def _known_number(newest: object, before: float | None) -> float | None:
    found = number(newest)
    return before if found is None else found


def _group(groups: Sequence[str], rank: int) -> str | None:
    return groups[rank] if rank < len(groups) else None


def _text(value: Any) -> Any:
    """Return a text on one line and cut; all else as it is."""
    return one_line(value, MOST_TEXT) if isinstance(value, str) else value


def _digest(value: Any) -> str:
    text = json.dumps(value, default=str, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
