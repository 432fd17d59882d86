"""A move of units pays when the seconds lost since ranks drifted are at least the seconds of the move.

Ski rental: lost and move seconds together are at most twice those of the best choice, however long the change lasts
(docs/algorithms.md, RESHARD).
"""

from dataclasses import replace

from heterotp_trainer.balancing.detection import Drift
from heterotp_trainer.balancing.history import History
from heterotp_trainer.plans.ownership import MoveCase, Ownership

LEAST_GAIN = 0.01  # of an iteration: a smaller gain is not worth a move, however long it lasts


def with_loss_counted(history: History, ownership: Ownership, drift: Drift, target_seconds: float) -> Ownership:
    """Return the ownership with lost_seconds up to now, against iterations of target_seconds.

    The count continues as long as one of the ranks that started it drifts, and restarts when others drift instead. It
    starts with the loss of the newest window, because a change is detected some iterations late.
    """
    persistent = tuple(rank for rank in ownership.persistent if rank in drift.ranks)
    same_change = bool(persistent) or not (ownership.persistent or drift.ranks)
    continues = ownership.lost_seconds > 0 and same_change
    uncounted = history.count - ownership.counted_at if continues else history.window
    uncounted = min(uncounted, history.count - (ownership.moved_at or 0))
    newest = sum(drift.problem.lost_seconds(each, target_seconds) for each in history.last(uncounted))
    return replace(
        ownership,
        drifted=drift.ranks,
        persistent=persistent if continues else drift.ranks,
        lost_seconds=ownership.lost_seconds + newest if continues else newest,
        counted_at=history.count,
    )


def pays(case: MoveCase) -> bool:
    """Return whether the move saves enough per iteration, and not moving has cost as much as the move."""
    saved = case.now_seconds - case.then_seconds
    return saved > LEAST_GAIN * case.now_seconds and case.lost_seconds >= case.move_seconds
