"""Slow-downs over time, for a fleet of independent jobs: read from CSV, replayed under a strategy.

A line is one slow-down of one rank of a job, with its begin and end in seconds: job, rank, start_seconds, stop_seconds
(empty: to the end), slowdown. Slow-downs of one rank that overlap multiply.
"""

import csv
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

from heterotp_api.policy import BalancingSettings
from heterotp_api.slowdown import MOST_SLOWDOWN
from heterotp_trainer.balancing.simulation import Machine, Simulation

from heterotp_cli.errors import BadInput

COLUMNS = ("job", "rank", "start_seconds", "stop_seconds", "slowdown")
HOUR = 3600.0
CHUNKS = 4  # of jobs for each core, so that no core is idle for long at the end


@dataclass(frozen=True)
class Spell:
    """One slow-down of one rank from `start` to `stop`, seconds."""

    job: str
    rank: int
    start: float
    stop: float
    slowdown: float


@dataclass(frozen=True)
class Replay:
    """One job: iterations done in `seconds`, mean share of work deleted, and moves of units."""

    job: str
    iterations: int
    seconds: float
    deleted: float
    moves: int


def read_trace(path: Path, ranks: int) -> dict[str, list[Spell]]:
    """Return the spells by job; raises BadInput naming line and column."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            table = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (table.fieldnames or ())]
            if missing:
                raise BadInput(f"{path}: line 1: column {missing[0]} is missing: the columns are {', '.join(COLUMNS)}")
            spells = [_spell(path, number, row, ranks) for number, row in enumerate(table, 2)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"--trace: {path}: {error}") from None
    if not spells:
        raise BadInput(f"--trace: {path}: no line after the first: nothing to replay")
    jobs: dict[str, list[Spell]] = {}
    for spell in spells:
        jobs.setdefault(spell.job, []).append(spell)
    return jobs


def _spell(path: Path, number: int, row: Mapping[str, str | None], ranks: int) -> Spell:
    def value(name: str, least: float, default: float | None = None) -> float:
        text = (row.get(name) or "").strip()
        if not text and default is not None:
            return default
        try:
            found = float(text)
        except ValueError:
            found = float("nan")
        if not found >= least or (math.isinf(found) and name != "stop_seconds"):
            raise BadInput(f"{path}: line {number}: {name}: {text!r}: must be a number >= {least:g}")
        return found

    rank, start = value("rank", 0), value("start_seconds", 0)
    if rank != int(rank) or rank >= ranks:
        raise BadInput(f"{path}: line {number}: rank: {row['rank']!r}: the job has ranks 0 .. {ranks - 1}")
    stop, slowdown = value("stop_seconds", start, float("inf")), value("slowdown", 1)
    if slowdown > MOST_SLOWDOWN:
        raise BadInput(f"{path}: line {number}: slowdown: {slowdown:g}: at most {MOST_SLOWDOWN:g}")
    return Spell((row.get("job") or "").strip() or "job", int(rank), start, stop, slowdown)


def chis_at(spells: Iterable[Spell], ranks: int, now: float) -> list[float]:
    """Return every rank's slow-down at time `now`, seconds."""
    chis = [1.0] * ranks
    for spell in spells:
        if spell.start <= now < spell.stop:
            chis[spell.rank] = min(MOST_SLOWDOWN, chis[spell.rank] * spell.slowdown)
    return chis


def replay(machine: Machine, policy: BalancingSettings, job: str, spells: Sequence[Spell], seconds: float) -> Replay:
    """Return the iterations of a job in so many seconds under a policy."""
    run, now, done, deleted, moves = Simulation(machine, policy), 0.0, 0, 0.0, 0
    for until, chis in _stretches(spells, machine.unit_plan.ranks, seconds):
        while now < until:
            each = run.step(chis)
            # no decision changes before the next slow-down: the rest of the stretch at once
            count = max(1, math.ceil((until - now) / each.seconds)) if run.quiet else 1
            now, done, deleted = now + count * each.seconds, done + count, deleted + count * each.deleted
            moves += each.moved
    return Replay(job, done, now, deleted / max(1, done), moves)


def end_of(jobs: Mapping[str, Sequence[Spell]]) -> float:
    """Return the seconds to replay: until the last begin or end, and an hour more where a slow-down has no end."""
    spells = [spell for each in jobs.values() for spell in each]
    edges = [edge for spell in spells for edge in (spell.start, spell.stop) if math.isfinite(edge)]
    stays = any(math.isinf(spell.stop) for spell in spells)
    return (max(edges) + (HOUR if stays else 0.0)) or HOUR


def replay_fleet(
    pool: Executor, machine: Machine, policy: BalancingSettings, jobs: Mapping[str, Sequence[Spell]], seconds: float
) -> list[Replay]:
    """Return the iterations of every job; jobs are independent, so the cores share them."""
    chunk = max(1, len(jobs) // (CHUNKS * (os.cpu_count() or 1)))
    alike = repeat(machine), repeat(policy), jobs, jobs.values(), repeat(seconds)
    return list(pool.map(replay, *alike, chunksize=chunk))


def _stretches(spells: Sequence[Spell], ranks: int, seconds: float) -> Iterator[tuple[float, list[float]]]:
    """Yield the end of every period without a change, seconds, and the slow-downs in it."""
    edges = {edge for spell in spells for edge in (spell.start, spell.stop) if 0 < edge < seconds}
    start = 0.0
    for stop in [*sorted(edges), seconds]:
        yield stop, chis_at(spells, ranks, start)
        start = stop
