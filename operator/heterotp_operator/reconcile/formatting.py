"""How messages name many things: some of them, and how many more."""

from collections.abc import Sequence


def some(things: Sequence[str], most: int, joint: str = "; ", what: str = "") -> str:
    """Return at most so many things in a row, and how many more there are."""
    more = len(things) - most
    rest = [f"and {more} more{f' {what}' if what else ''}"] if more > 0 else []
    return joint.join([*things[:most], *rest])
