"""Conditions of a status, and what follows from them: lastTransitionTime changes only with a condition's status."""

from dataclasses import dataclass, field
from typing import Protocol

from heterotp_api.conditions import (
    CREATED,
    FAILED,
    JOB_CONDITIONS,
    PODS_READY,
    REPLACEMENT_ADVISED,
    RESTARTING,
    RUNNING,
    STALLED,
    STRAGGLING,
    SUCCEEDED,
    SUSPENDED,
)

from heterotp_operator.reconcile.observed import Body, Observed, stamp

# conditions that hold only while a gang runs
AT_WORK = (PODS_READY, RUNNING, STALLED, STRAGGLING, REPLACEMENT_ADVISED)
MAX_MESSAGE = 4096
FIRST_PHASE = "Pending"


class HasStatus(Protocol):
    """An object whose conditions are to be set."""

    @property
    def status(self) -> Body:
        """The live status."""

    @property
    def now(self) -> float:
        """Unix seconds."""


@dataclass
class Conditions:
    """The conditions of the next status; they start as the live ones."""

    observed: HasStatus
    _all: dict[str, Body] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._all = {c["type"]: dict(c) for c in self.observed.status.get("conditions") or ()}

    def set(self, kind: str, holds: bool, reason: str, message: str = "") -> None:
        """Set whether a condition holds, with a reason constant and a message for people."""
        status = "True" if holds else "False"
        old = self._all.get(kind, {})
        moved = old.get("status") != status
        self._all[kind] = {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message[:MAX_MESSAGE],
            "lastTransitionTime": (not moved and old.get("lastTransitionTime")) or stamp(self.observed.now),
        }

    def clear(self, kind: str, reason: str) -> None:
        """Set a condition that holds to False; one that is absent stays absent."""
        if self.holds(kind):
            self.set(kind, False, reason)

    def holds(self, kind: str) -> bool:
        """Return whether a condition is True."""
        return bool(self._all.get(kind, {}).get("status") == "True")

    def reason(self, kind: str) -> str:
        """Return the reason of a condition; empty for one that is absent."""
        return str(self._all.get(kind, {}).get("reason") or "")

    def list(self) -> list[Body]:
        """Return all conditions in a fixed order."""
        known = [self._all[kind] for kind in JOB_CONDITIONS if kind in self._all]
        return known + [c for kind, c in sorted(self._all.items()) if kind not in JOB_CONDITIONS]

    def phase(self) -> str:
        """Return the phase that follows from the conditions."""
        for kind in (FAILED, SUCCEEDED, SUSPENDED, RESTARTING, RUNNING):
            if self.holds(kind):
                return kind
        return "Starting" if self.holds(CREATED) else FIRST_PHASE


def completed_attempt(observed: Observed) -> int:
    """Return the last attempt whose pods were all made, 0 for none: the next status.completedAttempt."""
    if observed.places and len(observed.current) == len(observed.places):
        return observed.attempt
    known = observed.status.get("completedAttempt")
    if known is None:  # of an older operator
        return observed.attempt if was_complete(observed) else 0
    return int(known)


def was_complete(observed: Observed) -> bool:
    """Return whether all pods of the current attempt were made before, so that a missing one was lost.

    A status without completedAttempt is of an older operator. Created then is of this attempt if any pod of it is
    there: such an operator made the pods of an attempt only after it had taken Created back. An attempt without a
    single pod is made anew, which is safe.
    """
    if not observed.holds(CREATED) or _resized(observed):
        return False
    known = observed.status.get("completedAttempt")
    return bool(observed.current) if known is None else known == observed.attempt > 0


def _resized(observed: Observed) -> bool:
    """Return whether the number of pods changed since the live status was written."""
    counts = [int(group.get("desired") or 0) for group in observed.status.get("workerGroups") or ()]
    return bool(counts) and sum(counts) != len(observed.places)
