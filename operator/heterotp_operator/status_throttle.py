"""The write rule: what matters is written at once, numbers when one moved by 5 % or after 30 s."""

import re
from typing import Any

from heterotp_operator.store import Json

NUMBERS = ("ranks", "training", "slowest", "savedSeconds", "measured")  # fields that move with every poll
DECIMAL = re.compile(r"(?<![\w.-])\d+\.\d+(?![\d.])")  # in a message, not in a name; it moves as the numbers do
COUNTERS = ("attempt", "restarts")  # another field manager's
MOVED_RATIO = 0.05
EVERY_SECONDS = 30.0


def due(written: Json, wanted: Json, seconds_since_write: float) -> bool:
    """Return whether `wanted` is worth a write over the live status `written`."""
    if _facts(written) != _facts(wanted):
        return True
    old, new = _numbers(written), _numbers(wanted)
    if old == new:
        return False
    return seconds_since_write >= EVERY_SECONDS or moved(old, new)


def _numbers(status: Json) -> Json:
    balancing = status.get("balancing") or {}
    seconds = {name: value for name, value in balancing.items() if name.endswith("Seconds")}
    return {"balancing": seconds} | {name: status.get(name) for name in NUMBERS}


def awaits_ranks(written: Json, wanted: Json) -> bool:
    """Return whether all news is what the ranks are being told: they take it in a moment, and one write says both."""
    told = wanted.get("balancing") or {}
    behind = told.get("appliedGeneration") is not None and told["generation"] > told["appliedGeneration"]
    others = [_facts({**status, "balancing": None}) for status in (written, wanted)]
    return wanted.get("phase") == "Running" and behind and others[0] == others[1]


def _facts(status: Json) -> Json:
    kept = {name: value for name, value in status.items() if name not in (*NUMBERS, *COUNTERS)}
    if isinstance(kept.get("balancing"), dict):  # seconds in it are numbers, the rest are facts
        kept["balancing"] = {k: v for k, v in kept["balancing"].items() if not k.endswith("Seconds")}
    pruned = _pruned(kept)
    assert isinstance(pruned, dict)
    return pruned


def _pruned(value: Any) -> Any:
    """Return the value without decimals in texts, and without what is empty: the API server fills such defaults in."""
    if isinstance(value, dict):
        return {name: inner for name, each in value.items() if (inner := _pruned(each))}
    if isinstance(value, list):
        return [_pruned(each) for each in value]
    return DECIMAL.sub("#", value) if isinstance(value, str) else value


def moved(old: Any, new: Any) -> bool:
    """Return whether a number moved by 5 % or more, or anything else differs at all."""
    if isinstance(old, dict) and isinstance(new, dict):
        return any(moved(old.get(name), new.get(name)) for name in old.keys() | new.keys() if name != "slowest")
    if isinstance(old, list) and isinstance(new, list):
        return len(old) != len(new) or any(moved(a, b) for a, b in zip(old, new, strict=True))
    if _is_number(old) and _is_number(new):
        return abs(new - old) >= MOVED_RATIO * max(abs(old), abs(new)) if old != new else False
    return bool(_pruned(old) != _pruned(new))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
