"""What every kind of fault is: drawn arguments, a beginning, and an end where it lasts.

A class says what its faults can cause, for the checker to read: nothing else may happen.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

ANY = ("*",)  # jobs that a fault may have hit: nobody knows


@dataclass(frozen=True)
class Hit:
    """What a fault hit: uids of jobs, and the attempt of the one job that it hit alone; detail: for people.

    shows: whether its job's owner must see it; not where nothing of the job was lost, or its operator was hit, too.
    """

    jobs: tuple[str, ...] = ()
    attempt: int | None = None
    detail: str = ""
    shows: bool = True


@dataclass
class Fault(ABC):
    """One fault with its arguments."""

    kind: ClassVar[str]
    where: ClassVar[tuple[str, ...]] = ("api",)
    restarts: ClassVar[bool] = False  # it may cost the jobs that it hits an attempt
    fails: ClassVar[bool] = False  # it may fail the jobs that it hits for good
    ends_operator: ClassVar[bool] = False  # the operator's process may end because of it
    outage: ClassVar[bool] = False  # while it lasts nothing can show in any status
    shows: ClassVar[str] = ""  # what the owner of the job must see of it: a name in invariants/shown.py

    arguments: dict[str, object] = field(default_factory=dict)

    @staticmethod
    def draw(random):
        """Return random arguments; `seconds` among them: how long the fault lasts."""
        return {}

    @abstractmethod
    def begin(self, world):
        """Inject the fault; return what it hit, None when there was nothing to hit."""

    def end(self, world):  # noqa: B027 (most faults do not last)
        """End a fault that lasts."""

    @classmethod
    def facts(cls):
        """Return what the checker must know of this kind."""
        return {name: getattr(cls, name) for name in ("restarts", "fails", "ends_operator", "outage", "shows")}
