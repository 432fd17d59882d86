"""Merges the traces of ranks into one Chrome trace, which Perfetto opens: one process per rank, and our tracks. Pure.

Times are moved to the clock of the first rank: a rank's profiler writes unix time, its monotonic clock is known beside
it, and how far the clocks of machines differ follows from the collectives in which their ranks meet.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from heterotp_api.formatting import one_line
from heterotp_api.rank_trace import RankTrace
from heterotp_trainer.insight.clocks import offsets

Event = dict[str, Any]
DECISIONS = 1  # process of the track of decisions
FIRST_PROCESS, PROCESSES = 1000, 100  # of rank 0; of each rank
ITERATIONS, PHASES = 1, 2  # tracks of a rank's first process
OF_PROFILER = ("Spans", "Traces", "")  # processes in which the profiler writes about itself
MOST_TEXT = 200
GAP_NS = 2  # between slices of our tracks


@dataclass(frozen=True)
class Traced:
    """One rank's trace: what it left, and the events of its profiler; base_ns: unix time of their time 0."""

    meta: RankTrace
    group: str
    base_ns: int
    events: Sequence[Event]


def merged(ranks: Sequence[Traced], decisions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the whole trace, times in microseconds since its begin; decisions: of the journal, ascending."""
    ahead = _ahead([rank.meta for rank in ranks])
    start = min(rank.meta.bounds[0] - off for rank, off in zip(ranks, ahead, strict=True))
    events: list[Event] = []
    for rank, off in zip(ranks, ahead, strict=True):
        events += _profiled(rank, start + off)
        events += _own(rank, start + off)
    events += _decided(ranks[0].meta, start + ahead[0], decisions)
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _ahead(metas: Sequence[RankTrace]) -> list[int]:
    """Return what each rank's monotonic clock shows more than the first one's, nanoseconds."""
    meetings = min(len(meta.arrived) for meta in metas)
    arrived, completed = (
        np.array([getattr(meta, name)[:meetings] for meta in metas], dtype=np.float64).T.reshape(meetings, len(metas))
        for name in ("arrived", "completed")
    )
    return [round(each * 1e9) for each in offsets(arrived, completed, [meta.boot for meta in metas])]


def _process(rank: int, number: int = 0) -> int:
    return FIRST_PROCESS + rank * PROCESSES + min(number, PROCESSES - 1)


def _profiled(rank: Traced, start_ns: int) -> Iterator[Event]:
    """Yield the profiler's events in processes of the rank; start_ns: of the whole trace, by the rank's clock."""
    meta = rank.meta
    moved = (rank.base_ns - meta.unix_ns + meta.monotonic_ns - start_ns) / 1000
    processes: dict[str, int] = {}
    threads: dict[tuple[str, str], int] = {}
    for event in rank.events:
        if event.get("ph") == "M" or event.get("pid") in OF_PROFILER or not isinstance(event.get("ts"), int | float):
            continue
        process = processes.setdefault(str(event.get("pid")), len(processes))
        thread = threads.setdefault((str(event.get("pid")), str(event.get("tid"))), len(threads) + PHASES + 1)
        more = {"id": f"{meta.rank}.{event['id']}"} if "id" in event else {}  # flows of ranks must not meet
        yield {**event, "ts": event["ts"] + moved, "pid": _process(meta.rank, process), "tid": thread, **more}
    for name, number in list(processes.items())[1:]:  # of devices; _own names the first one
        yield from _named(_process(meta.rank, number), f"rank {meta.rank} ({rank.group}) · {name}", meta.rank)
    for (name, thread_name), number in threads.items():
        yield _meta("thread_name", _process(meta.rank, processes[name]), number, name=f"thread {thread_name}")


def _own(rank: Traced, start_ns: int) -> Iterator[Event]:
    """Yield the tracks of iterations and phases of a rank."""
    meta, process = rank.meta, _process(rank.meta.rank)
    yield from _named(process, f"rank {meta.rank} ({rank.group})", meta.rank)
    yield _meta("thread_name", process, ITERATIONS, name="iterations")
    yield _meta("thread_name", process, PHASES, name="phases")
    for number, (begin, end) in enumerate(zip(meta.bounds, meta.bounds[1:], strict=False)):
        yield _slice(f"iteration {meta.first + number}", begin - start_ns, end - begin, process, ITERATIONS)
    ends = [*(at for at, _ in meta.phases[1:]), meta.bounds[-1]]
    for (begin, phase), end in zip(meta.phases, ends, strict=True):
        if end > begin:
            yield _slice(phase, begin - start_ns, end - begin, process, PHASES)


def _decided(meta: RankTrace, start_ns: int, decisions: Sequence[Mapping[str, Any]]) -> Iterator[Event]:
    """Yield the decision that was in force in each traced iteration, as one track."""
    yield from _named(DECISIONS, "decisions", -1)
    yield _meta("thread_name", DECISIONS, ITERATIONS, name="in force")
    for number, (begin, end) in enumerate(zip(meta.bounds, meta.bounds[1:], strict=False)):
        made = next((each for each in reversed(decisions) if each["iteration"] <= meta.first + number), None)
        if made is not None:
            name = f"decision {made['decisionId']}: {made['strategy']}"
            reason = one_line(str(made.get("reason") or ""), MOST_TEXT)
            yield {**_slice(name, begin - start_ns, end - begin, DECISIONS, ITERATIONS), "args": {"reason": reason}}


def _slice(name: str, begin_ns: int, length_ns: int, process: int, thread: int) -> Event:
    # a reader that cuts microseconds to whole nanoseconds must not see slices of one track overlap
    times = {"ts": begin_ns / 1000, "dur": max(0, length_ns - GAP_NS) / 1000}
    return {"ph": "X", "cat": "heterotp", "name": name, "pid": process, "tid": thread, **times}


def _named(process: int, name: str, order: int) -> list[Event]:
    named = _meta("process_name", process, 0, name=one_line(name, MOST_TEXT))
    return [named, _meta("process_sort_index", process, 0, sort_index=order)]


def _meta(kind: str, process: int, thread: int, **arguments: object) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "ts": 0, "args": arguments}
