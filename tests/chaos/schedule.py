"""Which faults begin when: a pure function of the seed."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

SECONDS_BETWEEN = 4.0  # on average, where pods are simulated
SECONDS_BETWEEN_ON_KIND = 20.0  # so that ranks train in between
LONGEST_SHARE = 1 / 6  # of the run, that one fault lasts at most
SETTLED_SHARE = 0.05  # of the run, before the first fault


@dataclass(frozen=True)
class Planned:
    """One fault: when it begins (seconds since the start), kind and arguments; `seconds`: how long it lasts."""

    number: int
    at: float
    kind: str
    arguments: dict[str, Any] = field(default_factory=dict)


def schedule(seed, minutes, kinds, seconds_between=SECONDS_BETWEEN):
    """Return the faults of a run in the order of their beginning.

    kinds: a function per kind that draws its arguments from a random generator. Every kind appears at least once.
    seconds_between: from one fault to the next, on average.
    """
    random, seconds = Random(f"faults {seed}"), 60.0 * minutes
    wanted = max(len(kinds), round(seconds / seconds_between))
    drawn = [*kinds, *random.choices(list(kinds), k=wanted - len(kinds))]
    random.shuffle(drawn)
    times = sorted(random.uniform(SETTLED_SHARE, 1.0) * seconds for _ in drawn)
    return [
        Planned(number, round(at, 2), kind, _bounded(kinds[kind](random), seconds * LONGEST_SHARE))
        for number, (at, kind) in enumerate(zip(times, drawn, strict=True))
    ]


def _bounded(arguments, most_seconds):
    if "seconds" not in arguments:
        return arguments
    return {**arguments, "seconds": round(min(arguments["seconds"], most_seconds), 2)}
