"""A gang that ends no iteration, as rank 0 reports it: a condition, a block of the status, and events.

Rank 0 is not trusted: numbers are bounded, its text is cut and cleaned, and the times are those of this clock. Nothing
here changes from poll to poll while a stall lasts, so that it costs one write.
"""

import math

from heterotp_api import reasons
from heterotp_api.conditions import STALLED
from heterotp_api.formatting import one_line, stall_text
from heterotp_api.status import MAX_RANKS
from heterotp_api.trainer_status import TrainerStatus

from heterotp_operator.reconcile.actions import Event
from heterotp_operator.reconcile.conditions import Conditions
from heterotp_operator.reconcile.observed import Body, Observed, stamp

MAX_WHERE = 512  # characters of what rank 0 reports


def stall_of(observed: Observed) -> Body | None:
    """Return status.stall; it stays as it is while rank 0 does not answer. None: iterations end."""
    live = observed.status.get("stall") if observed.holds(STALLED) else None
    trainer = observed.trainer_status
    if trainer is None:
        return live
    if trainer.stalled_seconds is None:
        return None
    same = live is not None and (live.get("iteration") or 0) == trainer.iteration and live.get("since")
    ranks = sorted({rank for rank in trainer.stalled_by if 0 <= rank < observed.spec.process_count})
    return {
        "since": live["since"] if live and same else _since(observed, trainer.stalled_seconds),
        "iteration": trainer.iteration,
        "ranks": ranks[:MAX_RANKS],
    }


def show_stall(observed: Observed, conditions: Conditions) -> tuple[Event, ...]:
    """Set Stalled by rank 0's report; it stays as it is while there is none."""
    stall, trainer, held = stall_of(observed), observed.trainer_status, observed.holds(STALLED)
    if trainer is None:
        return ()
    if stall is None:
        conditions.clear(STALLED, reasons.ITERATIONS_END)
        return (Event("Normal", reasons.ITERATIONS_END, "iterations end again"),) if held else ()
    words = _words(stall, trainer)
    conditions.set(STALLED, True, reasons.NO_ITERATION, words)
    return () if held else (Event("Warning", reasons.NO_ITERATION, words),)


def _words(stall: Body, trainer: TrainerStatus) -> str:
    return stall_text(f"since {stall['since']}", one_line(trainer.stall, MAX_WHERE))


def _since(observed: Observed, seconds: float) -> str:
    known = seconds if math.isfinite(seconds) else 0.0
    return stamp(observed.now - min(max(known, 0.0), observed.now))
