"""What the page shows of a job of a cluster: its status, read again and again through the API server.

An API server keeps no history: iterations and decisions are shown from the moment at which the page was opened.
"""

import secrets
import time
from collections import deque
from typing import Any

from heterotp_cli.ui.columns import MOST_RANKS, Columns, RankTimes
from heterotp_cli.ui.document import Picture
from heterotp_cli.verbs.explanation import explain
from heterotp_cli.verbs.target import Target
from heterotp_cli.verbs.view import JobView, RankView

MOST_DECISIONS = 300


class ClusterFeed:
    """A HeteroTPJob; `look` is called by one thread at a time."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._decisions: deque[dict[str, Any]] = deque(maxlen=MOST_DECISIONS)
        self._left_out = 0
        self._begin(0)

    def _begin(self, ranks: int) -> None:
        self._columns, self._times = Columns(ranks), RankTimes(ranks)
        self._key, self._at = secrets.token_hex(4), (0, 0)

    def look(self) -> Picture:
        """Return the job as the API server has it now; raise Failed where it does not answer."""
        view = self.target.look()
        ranks = min(MOST_RANKS, view.rank_count or len(view.ranks))
        if ranks != self._columns.ranks:
            self._begin(ranks)
        at = (view.attempt or 0, view.iteration or 0)
        if view.iteration and at != self._at:
            entry = entry_of(view, ranks)
            self._columns.add(entry)
            self._times.add(entry)
        self._at = at
        self._decide(view)
        return Picture(
            view,
            self._columns,
            self._times,
            key=self._key,
            explanation=explain(view, time.time(), self.target.command("policy")),
            decisions=list(self._decisions),
            left_out=self._left_out,
        )

    def _decide(self, view: JobView) -> None:
        if not view.reason or (self._decisions and self._decisions[-1]["reason"] == view.reason):
            return
        self._left_out += len(self._decisions) == MOST_DECISIONS
        made = {"attempt": view.attempt, "iteration": view.iteration, "strategy": view.strategy}
        self._decisions.append({**made, "reason": view.reason})


def entry_of(view: JobView, ranks: int) -> dict[str, Any]:
    """Return a job's status as an entry of a history: an empty row for a rank that the status does not show."""
    rows: list[dict[str, Any]] = [{} for _ in range(ranks)]
    for each in view.ranks:
        if each.rank < ranks:
            rows[each.rank] = _row(each)
    if view.blame:
        for rank, row in enumerate(rows):
            row["blamed"] = sum(each.seconds for each in view.blame if each.rank == rank)
    measured = view.iteration_seconds is not None
    times = {"iterationSeconds": view.iteration_seconds, "measured": measured}
    return {"iteration": view.iteration, "loss": view.loss, "accuracy": view.accuracy, **times, "ranks": rows}


def _row(rank: RankView) -> dict[str, Any]:
    """Return a rank's times: a status has those of products, of all computation and of waiting."""
    products, computing = rank.matmul_seconds, rank.compute_seconds
    other = None if products is None or computing is None else max(0.0, computing - products)
    return {"chi": rank.slowdown, "matmul": products, "other": other, "wait": rank.wait_seconds}
