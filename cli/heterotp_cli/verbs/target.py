"""What the verbs act on: a job of a cluster or a run directory, and how a change of it stands."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from heterotp_cli.verbs.change_requests import Aim, Slow
from heterotp_cli.verbs.view import JobView

WAIT_SECONDS, POLL_SECONDS = 15.0, 0.25
# a refusal in the words of an earlier one is that of the earlier one, until a poll and a write have passed
STALE_SECONDS = 6.0


@dataclass(frozen=True)
class Standing:
    """How a change stands; `later` means that it holds as soon as the job runs."""

    verdict: Literal["in force", "pending", "later", "refused"]
    text: str = ""


@dataclass(frozen=True)
class Change:
    """A change that was made: what to say of it, how to take it back (empty: nothing), and how it stands.

    `stands` looks, `seconds` after the change, and is asked until it is no longer pending.
    """

    said: str
    take_back: str
    stands: Callable[[float], Standing]


class Target(Protocol):
    """One job, or for `jobs` the place where jobs are."""

    def look(self) -> JobView:
        """Return the job as it is now."""

    def jobs(self) -> list[JobView]:
        """Return all jobs of the place."""

    def where(self) -> str:
        """Return where `jobs` looks, e.g. `in namespace default`."""

    def command(self, verb: str) -> str:
        """Return what to type for another verb on this job."""

    def inject(self, aimed: Aim, how: Slow) -> Change:
        """Slow ranks down."""

    def take_back(self, aimed: Aim) -> Change:
        """Take back what `inject` made for these targets; for an empty aim, all it made for the job."""

    def set_policy(self, strategy: str, max_pruned_share: float | None, sets: tuple[str, ...]) -> Change:
        """Change how the job balances."""

    def set_default(self) -> Change:
        """Give the job the policy that it has when nobody says anything."""


def await_change(change: Change, clock: Callable[[], float], sleep: Callable[[float], None]) -> tuple[Standing, float]:
    """Return how a change stands once that is settled, or after the longest wait, and the seconds that took."""
    begun = clock()
    while True:
        passed = clock() - begun
        standing = change.stands(passed)
        if standing.verdict != "pending" or passed >= WAIT_SECONDS:
            return standing, clock() - begun
        sleep(POLL_SECONDS)
