"""Whether an object is deeper or larger than any that is meant; found without recursion, before others read it."""

from typing import Any

MOST_LEVELS = 64
MOST_VALUES = 50_000
MOST_CHARACTERS = 1 << 20


def excess_of(value: Any) -> str | None:
    """Return what a JSON value exceeds, for people; None: nothing."""
    values = characters = 0
    level: list[Any] = [value]
    for _ in range(MOST_LEVELS + 1):
        values += len(level)
        characters += sum(len(each) for each in level if isinstance(each, str))
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                characters += sum(map(len, each))
                inner.extend(each.values())
            elif isinstance(each, list):
                inner.extend(each)
        if values + len(inner) > MOST_VALUES:
            return f"holds more than {MOST_VALUES} values"
        if characters > MOST_CHARACTERS:
            return f"holds more than {MOST_CHARACTERS} characters"
        if not inner:
            return None
        level = inner
    return f"is nested deeper than {MOST_LEVELS} levels"
