"""When a status is written: facts at once, numbers when one moved by 5 %, all that is left after 30 s.

Facts are fields that programs read: phases, reasons, counts, generations. A text for people is no fact: that there is
one is a fact, its wording is not.
"""

from typing import Any

from heterotp_api.conditions import RUNNING

from heterotp_operator.reconcile.actions import COUNTERS
from heterotp_operator.store import Json

NUMBERS = ("ranks", "training", "slowest", "savedSeconds", "measured")  # fields that move with every poll
TEXTS = ("message", "problem", "injectionProblem", "slowest")  # for people, wherever they stand
MOVED_RATIO = 0.05
EVERY_SECONDS = 30.0


def due(written: Json, wanted: Json, seconds_since_write: float) -> bool:
    """Return whether `wanted` is worth a write over the live status `written`."""
    if _facts(written) != _facts(wanted) or moved(_numbers(written), _numbers(wanted)):
        return True
    return seconds_since_write >= EVERY_SECONDS and _differ(written, wanted)


def due_later(written: Json, wanted: Json, seconds_since_write: float) -> float | None:
    """Return the seconds after which a status that is not due now is; None when there is nothing to write."""
    return max(0.0, EVERY_SECONDS - seconds_since_write) if _differ(written, wanted) else None


def _differ(written: Json, wanted: Json) -> bool:
    old, new = ({k: v for k, v in status.items() if k not in COUNTERS} for status in (written, wanted))
    return bool(_filled(old) != _filled(new))


def _numbers(status: Json) -> Json:
    balancing = status.get("balancing") or {}
    seconds = {name: value for name, value in balancing.items() if name.endswith("Seconds")}
    return {"balancing": seconds} | {name: status.get(name) for name in NUMBERS}


def awaits_ranks(written: Json, wanted: Json) -> bool:
    """Return whether only a control document is new that the ranks have not taken yet: one write can show both."""
    balancing = wanted.get("balancing") or {}
    behind = balancing.get("appliedGeneration") is not None and balancing["generation"] > balancing["appliedGeneration"]
    others = [_facts({**status, "balancing": None}) for status in (written, wanted)]
    return wanted.get("phase") == RUNNING and behind and others[0] == others[1]


def _facts(status: Json) -> Json:
    kept = {name: value for name, value in status.items() if name not in (*NUMBERS, *COUNTERS)}
    balancing = kept.get("balancing")
    if isinstance(balancing, dict):  # its reason is a sentence: decisionId counts what it describes
        facts = {k: v for k, v in balancing.items() if not k.endswith("Seconds")}
        kept["balancing"] = facts | {"reason": bool(balancing.get("reason"))}
    if isinstance(kept.get("stall"), dict):  # the ranks that the others wait for may alternate
        kept["stall"] = kept["stall"] | {"ranks": bool(kept["stall"].get("ranks"))}
    facts = _filled(_without_texts(kept))
    assert isinstance(facts, dict)
    return facts


def _without_texts(value: Any) -> Any:
    """Return the value with texts for people replaced by whether there is one."""
    if isinstance(value, dict):
        return {name: bool(each) if name in TEXTS else _without_texts(each) for name, each in value.items()}
    return [_without_texts(each) for each in value] if isinstance(value, list) else value


def _filled(value: Any) -> Any:
    """Return the value without what is empty: the API server fills such defaults in."""
    if isinstance(value, dict):
        return {name: inner for name, each in value.items() if (inner := _filled(each))}
    return [_filled(each) for each in value] if isinstance(value, list) else value


def moved(old: Any, new: Any) -> bool:
    """Return whether a number moved by 5 % or more, or anything else but the wording of a text differs."""
    return _moved(_without_texts(old), _without_texts(new))


def _moved(old: Any, new: Any) -> bool:
    if isinstance(old, dict) and isinstance(new, dict):
        return any(_moved(old.get(name), new.get(name)) for name in old.keys() | new.keys())
    if isinstance(old, list) and isinstance(new, list):
        return len(old) != len(new) or any(_moved(a, b) for a, b in zip(old, new, strict=True))
    if _is_number(old) and _is_number(new):
        return abs(new - old) >= MOVED_RATIO * max(abs(old), abs(new)) if old != new else False
    return bool(_filled(old) != _filled(new))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
