"""Reads a history and returns what it violates: a pure function, so that a history can be checked again."""

from chaos.invariants import gangs, owner, process, training
from chaos.timeline import Violation, of

INVARIANTS = {**gangs.INVARIANTS, **owner.INVARIANTS, **process.INVARIANTS, **training.INVARIANTS}


def check(history):
    """Return all violations in the order of time."""
    run = of(history, "run")
    seed = run[0]["seed"] if run else -1
    found = [
        Violation(seed, at, name, seen) for name, invariant in INVARIANTS.items() for at, seen in invariant(history)
    ]
    return sorted(found, key=lambda each: each.at)
