"""Durations and ratios as text, and durations from text. All pure."""

import re
from datetime import datetime

from heterotp_api.slowdown import slowdown_text

ABSENT = "-"
UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)([dhms])")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")


def parse_duration(text: str) -> float:
    """Return the seconds of 10m, 90s, 1h30m or plain seconds; raise ValueError with the valid forms."""
    right = "must be longer than 0, e.g. 10m, 90s, 1h30m or plain seconds"
    text = text.strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        total = float(text)
    elif _WHOLE.fullmatch(text):
        total = sum(float(number) * UNITS[unit] for number, unit in _PART.findall(text))
    else:
        raise ValueError(right)
    if not 0 < total < float("inf"):
        raise ValueError(right)
    return total


def duration(value: float | None) -> str:
    """Return a length of time in seconds as text: 4.2 s, 45 s, 12 min, 1 h 5 min, 3 d 2 h."""
    if value is None:
        return ABSENT
    if value < 9.95:
        return f"{value:.1f} s" if value != round(value) else f"{value:.0f} s"
    if value < 119.5:
        return f"{value:.0f} s"
    minutes = round(value / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        return _two(*divmod(minutes, 60), "h", "min")
    return _two(*divmod(round(value / 3600), 24), "d", "h")


def saved(seconds: float) -> str:
    """Return what balancing saved, or cost where it is negative: saved 12 min, lost 0.1 s."""
    return f"{'saved' if seconds > 0 else 'lost'} {duration(abs(seconds))}"


def _two(large: int, small: int, unit: str, smaller_unit: str) -> str:
    return f"{large} {unit} {small} {smaller_unit}" if small else f"{large} {unit}"


def ratio(value: float | None) -> str:
    """Return a slow-down: 4.0x, 250x, or `-` for an unknown one."""
    return ABSENT if value is None else slowdown_text(value)


def times(value: float) -> str:
    """Return a ratio within a sentence: 2.3 times."""
    return f"{value:.1f} times" if value < 100 else f"{value:.0f} times"


def seconds_since(stamp: str | None, now: float) -> float | None:
    """Return the seconds since an RFC 3339 time, as Kubernetes writes it; None where there is none."""
    if not stamp:
        return None
    try:
        return max(0.0, now - datetime.fromisoformat(stamp).timestamp())
    except ValueError:
        return None
