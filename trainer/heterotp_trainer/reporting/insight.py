"""Keeps the timeline of all ranks, and judges it at the end of every window."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from heterotp_api.stages import STAGES
from heterotp_api.trainer_status import MOST_BLAMED, MOST_CAUSES, TrainerBlame, TrainerCause

from heterotp_trainer.boundary.exchange import Report, comparable
from heterotp_trainer.devices.machine.reading import Reading
from heterotp_trainer.insight.blame import Array, Blame
from heterotp_trainer.insight.causes import Cause, RankSeen, causes
from heterotp_trainer.insight.findings import Findings, findings, of_one
from heterotp_trainer.insight.timeline import Timeline

LEAST_SECONDS = 5.0  # that the status shows together: windows of short iterations are over in no time


class Insight:
    """What one attempt shows of late ranks; `found`: of the last window, read by other threads."""

    def __init__(self, timeline: Timeline, now: Callable[[], float] = time.monotonic) -> None:
        self.timeline, self._now = timeline, now
        self.found: Findings | None = None
        self.causes: tuple[Cause, ...] = ()  # of `found`
        self._machines: tuple[Reading, ...] = ()  # what they said last
        self._explained: Findings | None = None
        self._judged = 0  # iterations of the timeline that were judged
        self._shown, self._shown_at = 0, now()  # iterations of the timeline, and when, as of `found`

    def under(self, decision_id: int, work: Array) -> None:
        """See Timeline.under."""
        self.timeline.under(decision_id, work)

    def take(self, reports: Sequence[Report]) -> None:
        """Add all ranks' reports of one iteration; those that are not comparable are left out."""
        self._machines = tuple(report.machine for report in reports)
        if comparable(reports):
            first = reports[0]
            span = sum(first.seconds.values())
            self.timeline.add(first.iteration, first.decision_id, span, [report.stages for report in reports])

    def judge(self) -> Findings | None:
        """Judge the iterations since the last call; None: there were none."""
        count, now = self.timeline.count, self._now()
        new, self._judged = count - self._judged, count
        found = findings(self.timeline.laps(new)) if new else None
        if count > self._shown and (self.found is None or now - self._shown_at >= LEAST_SECONDS):
            self.found = findings(self.timeline.laps(count - self._shown)) or self.found
            self._shown, self._shown_at = count, now
        return found

    def explain(self, chi: Sequence[float | None], asked: Sequence[float]) -> None:
        """Look for the causes of what was found last, once; chi, and the slow-down asked for, of each rank."""
        found = self.found
        if found is None or found is self._explained:
            return
        parts = found.steady / found.span if found.span > 0 else found.steady * 0.0
        seen = [
            RankSeen(dict(zip(STAGES, lost, strict=True)), of_rank, slowed, machine)
            for lost, of_rank, slowed, machine in zip(parts.tolist(), chi, asked, self._machines, strict=True)
        ]
        self.causes, self._explained = causes(seen, self.causes), found

    def fields(self) -> dict[str, Any]:
        """Return the fields of the status document that a window gives."""
        found = self.found
        if found is None:
            return {}
        blamed = [
            TrainerBlame(
                rank=each.rank,
                stage=each.stage,
                seconds=each.seconds,
                steady_seconds=each.steady_seconds,
                share=each.share,
            )
            for each in found.entries(MOST_BLAMED)
        ]
        shown = [TrainerCause(**asdict(each)) for each in self.causes[:MOST_CAUSES]]
        return {"lost_seconds": found.lost, "blame": tuple(blamed), "causes": tuple(shown)}

    def of_rank(self, rank: int) -> float | None:
        """Return the lost seconds of an iteration that a rank is to blame for; None: not known."""
        return None if self.found is None else float(self.found.seconds[rank].sum())

    def causes_of(self, rank: int) -> dict[str, float]:
        """Return the shares of a rank's causes by kind; empty: it is not slow, or nothing shows why."""
        return {each.kind: each.share for each in self.causes if each.rank == rank}

    def newest(self) -> tuple[list[float], dict[str, Any]] | None:
        """Return of the newest iteration what each rank loses, seconds, and the first to blame; None: not known."""
        laps = self.timeline.laps(1)
        if self.found is None or not laps:
            return None
        shares = of_one(laps[0], self.found.expected)
        late = Blame(shares[None], self.found.expected).path()[0]
        first = {"rank": late.rank, "stage": late.stage, "seconds": late.seconds} if late.seconds > 0 else {}
        return shares.sum(axis=1).tolist(), first


def by_stage(found: Findings, rank: int) -> dict[str, float]:
    """Return the seconds that a rank lost in all iterations of a window, by stage."""
    return dict(zip(STAGES, (found.seconds[rank] * found.iterations).tolist(), strict=True))
