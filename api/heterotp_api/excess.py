"""Whether a JSON value is deeper or larger than any that is meant; found without recursion, before others read it."""

from dataclasses import dataclass
from typing import Any

MOST_LEVELS = 64


@dataclass(frozen=True)
class Bounds:
    """How many values a JSON value may hold, itself included, and how many characters in its texts and keys."""

    values: int
    characters: int


MOST_OF_TEMPLATE = Bounds(5_000, 1 << 17)  # of one pod template: it is copied for every pod


def excess_of(value: Any, most: Bounds) -> str | None:
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
        if values + len(inner) > most.values:
            return f"holds more than {most.values} values"
        if characters > most.characters:
            return f"holds more than {most.characters} characters"
        if not inner:
            return None
        level = inner
    return f"is nested deeper than {MOST_LEVELS} levels"
