"""What the verbs act on: a job of a cluster or a run directory, and the status of a change of it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from heterotp_cli.verbs.change_requests import RankSelector, SlowdownRequest
from heterotp_cli.verbs.view import JobView

WAIT_SECONDS, POLL_SECONDS = 15.0, 0.25
# a refusal without a generation may be of an earlier document until a poll and a write have passed
STALE_SECONDS = 6.0


@dataclass(frozen=True)
class ChangeStatus:
    """How far a change has come; `later` means that it takes effect as soon as the job runs."""

    verdict: Literal["in force", "pending", "later", "refused"]
    text: str = ""


@dataclass(frozen=True)
class Change:
    """A change that was made, the command that undoes it (empty: nothing to undo), and a function for its status.

    `status` takes the seconds since the change, and is called until the change is no longer pending. `put_back`, where
    there is one, undoes a change that was refused and would spoil the next one; it returns whether there was need.
    """

    description: str
    undo_command: str
    status: Callable[[float], ChangeStatus]
    put_back: Callable[[], bool] | None = None


class Target(Protocol):
    """One job, or for `jobs` the place where jobs are."""

    @property
    def name(self) -> str:
        """Name of the job as the user gave it."""

    def look(self) -> JobView:
        """Return the job as it is now."""

    def jobs(self) -> list[JobView]:
        """Return all jobs of the place."""

    def where(self) -> str:
        """Return where `jobs` looks, e.g. `in namespace default`."""

    def command(self, verb: str) -> str:
        """Return what to type for another verb on this job."""

    def inject(self, selector: RankSelector, slowdown: SlowdownRequest) -> Change:
        """Slow ranks down."""

    def remove_injections(self, selector: RankSelector) -> Change:
        """Remove what `inject` made for these ranks; for an empty selector, all that it made for the job."""

    def set_policy(self, strategy: str, max_pruned_share: float | None, sets: tuple[str, ...]) -> Change:
        """Change how the job balances."""

    def set_default(self) -> Change:
        """Give the job the policy that applies without any setting of its own."""


def await_change(
    change: Change, clock: Callable[[], float], sleep: Callable[[float], None]
) -> tuple[ChangeStatus, float]:
    """Return the status of a change once it is settled, or after WAIT_SECONDS, and the seconds that this took.

    A change that is refused is put back, where it knows how.
    """
    begun = clock()
    while True:
        passed = clock() - begun
        status = change.status(passed)
        if status.verdict == "refused" and change.put_back is not None and change.put_back():
            status = replace(status, text=f"{status.text}; what was in force before is back")
        if status.verdict != "pending" or passed >= WAIT_SECONDS:
            return status, clock() - begun
        sleep(POLL_SECONDS)
