"""Ranks that slow the job now, and ranks that should be replaced: two conditions, and an event when either changes.

A rank is a straggler only while others wait for it: a group that is declared slow and got a smaller share is none, nor
is a rank whose units have moved away. The latter may still be worth a replacement.
"""

from collections.abc import Sequence
from itertools import islice

from heterotp_api import reasons
from heterotp_api.causes import cause_text, causes_text
from heterotp_api.conditions import REPLACEMENT_ADVISED, STRAGGLING
from heterotp_api.formatting import listed
from heterotp_api.status import CauseStatus

from heterotp_operator.reconcile.actions import Event
from heterotp_operator.reconcile.conditions import Conditions
from heterotp_operator.reconcile.observed import Body, Observed, seconds
from heterotp_operator.reconcile.training_status import known_causes, rank_rows

NAMED = 8  # ranks that a message names one by one


def show_stragglers(observed: Observed, conditions: Conditions) -> tuple[Event, ...]:
    """Set both conditions by rank 0's report; they stay as they are while there is none."""
    trainer = observed.trainer_status
    if trainer is None or trainer.state == "starting":
        return ()
    every = rank_rows(observed, trainer)
    causes = known_causes(trainer, observed.status.get("causes") or ())
    rows = [row for row in every if row["straggler"]]
    before = {row["rank"] for row in observed.status.get("ranks") or () if row.get("straggler")}
    events = _show_straggling(conditions, rows, causes, before if observed.holds(STRAGGLING) else set())
    replaceable = [row for row in every if _stays(observed, row)]
    return events + _show_replacement(observed, conditions, replaceable, causes) + _new_causes(observed, causes)


def _show_straggling(
    conditions: Conditions, rows: Sequence[Body], causes: Sequence[CauseStatus], before: set[int]
) -> tuple[Event, ...]:
    if not rows:
        held = conditions.holds(STRAGGLING)
        conditions.clear(STRAGGLING, reasons.RANKS_ARE_EVEN)
        return (Event("Normal", reasons.RANKS_ARE_EVEN, "no rank is slower than the others any more"),) if held else ()
    words = listed([_slow(row, causes) for row in rows], NAMED, "; ")
    conditions.set(STRAGGLING, True, reasons.RANKS_ARE_SLOW, words)
    return (Event("Warning", reasons.STRAGGLING, words),) if {row["rank"] for row in rows} != before else ()


def _show_replacement(
    observed: Observed, conditions: Conditions, rows: Sequence[Body], causes: Sequence[CauseStatus]
) -> tuple[Event, ...]:
    if not rows:
        conditions.clear(REPLACEMENT_ADVISED, reasons.NO_RANK_STAYS_SLOW)
        return ()
    settings = observed.effective.policy.settings
    rule = f"replaceThreshold {settings.replace_threshold:g}, replaceAfterSeconds {settings.replace_after_seconds}"
    words = listed([_slow(row, causes) for row in rows], NAMED, "; ") + f" ({rule}): replace or drain the node"
    news = not conditions.holds(REPLACEMENT_ADVISED)
    conditions.set(REPLACEMENT_ADVISED, True, reasons.RANK_STAYS_SLOW, words)
    return (Event("Warning", reasons.REPLACEMENT_ADVISED, words),) if news else ()


def _new_causes(observed: Observed, causes: Sequence[CauseStatus]) -> tuple[Event, ...]:
    """Return an event for each rank whose main cause was not shown before, but for injections: they have their own."""
    before = {(each.get("rank"), each.get("kind")) for each in observed.status.get("causes") or ()}
    main = {each.rank: each for each in reversed(causes)}
    new = [rank for rank, cause in main.items() if (rank, cause.kind) not in before and cause.kind != "injection"]
    return tuple(
        Event("Warning", reasons.CAUSE_FOUND, f"rank {rank} is slow: {causes_text(causes, rank)}")
        for rank in sorted(new)[:NAMED]
    )


def _stays(observed: Observed, row: Body) -> bool:
    """Return whether a rank has been slower than replaceThreshold for longer than replaceAfterSeconds."""
    since = seconds(row.get("replaceableSince"))
    patience = observed.effective.policy.settings.replace_after_seconds
    return since is not None and observed.now - since >= patience


def _slow(row: Body, causes: Sequence[CauseStatus]) -> str:
    where = f" on node {row['node']}" if row.get("node") else ""
    chi = f"{row['slowdown']:.1f}x slower" if row.get("slowdown") else "slower"
    asked = row.get("injectedSlowdown") or 1.0
    purpose = f", an injection asks for {asked:.1f}x" if asked > 1 else ""
    since = row.get("stragglingSince") or row["replaceableSince"]
    own = (each for each in causes if each.rank == row["rank"] and each.kind != "injection")
    why = "".join(f": {cause_text(each)}" for each in islice(own, 1))
    return f"rank {row['rank']}{where} is {chi} since {since}{purpose}{why}"
