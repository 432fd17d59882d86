"""The actions of a decision: each is safe to repeat, and they are carried out in order."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Body = dict[str, Any]
MOST_PODS = 256  # made or deleted in one look: a large gang must not keep its worker, and sees what happens meanwhile
COUNTERS = ("attempt", "restarts")  # of a job's status: BumpAttempt writes them, a Decision's status leaves them out


@dataclass(frozen=True)
class DryRunPod:
    """Have the API server validate the first pod of a group without making it; see CreatePod."""

    group: str
    build: Callable[[], Body]

    @property
    def body(self) -> Body:
        """The pod, built anew."""
        return self.build()


@dataclass(frozen=True)
class BumpAttempt:
    """Write the counters under a field manager of their own, guarded by resourceVersion: a stale writer gets 409."""

    attempt: int
    restarts: int
    resource_version: str


@dataclass(frozen=True)
class CreatePod:
    """Make a pod of deterministic name.

    Its body is built when the API server is asked: the bodies of a gang would together take the operator's memory, and
    building them at once would keep its event loop.
    """

    group: str
    build: Callable[[], Body]

    @property
    def body(self) -> Body:
        """The pod, built anew."""
        return self.build()


@dataclass(frozen=True)
class CreateService:
    """Make or correct the gang's headless Service."""

    body: Body


@dataclass(frozen=True)
class ApplyConfigMap:
    """Make or correct the control document."""

    body: Body


@dataclass(frozen=True)
class ApplyPodGroup:
    """Make or correct the gang scheduler's object."""

    body: Body


@dataclass(frozen=True)
class CreateWorkload:
    """Make the Workload that Kueue admits."""

    body: Body


@dataclass(frozen=True)
class PatchWorkload:
    """Merge a patch into exactly this version of the Workload, or into its status."""

    patch: Body  # with uid and resourceVersion
    subresource: str = ""


@dataclass(frozen=True)
class ReportWorkload:
    """Apply what the operator reports in the Workload's status: PodsReady, Finished, reclaimablePods."""

    body: Body


@dataclass(frozen=True)
class DeleteWorkload:
    """Delete exactly this Workload: its quota is free then."""

    uid: str


@dataclass(frozen=True)
class ApplyNetworkPolicy:
    """Make or correct the NetworkPolicy of the gang's pods."""

    body: Body


@dataclass(frozen=True)
class DeleteNetworkPolicy:
    """Delete exactly this NetworkPolicy."""

    name: str
    uid: str


@dataclass(frozen=True)
class DeletePod:
    """Delete exactly this pod; grace 0 forces where a node is lost."""

    name: str
    uid: str
    grace_seconds: int | None = None


@dataclass(frozen=True)
class TouchPod:
    """Annotate exactly this pod: its kubelet refreshes the mounted control document at once."""

    name: str
    uid: str
    generation: int


@dataclass(frozen=True)
class DeleteJob:
    """Delete the job itself, ttlSecondsAfterFinished after its end."""

    uid: str
    resource_version: str


Action = (
    DryRunPod
    | BumpAttempt
    | CreatePod
    | CreateService
    | ApplyConfigMap
    | ApplyPodGroup
    | CreateWorkload
    | PatchWorkload
    | ReportWorkload
    | DeleteWorkload
    | ApplyNetworkPolicy
    | DeleteNetworkPolicy
    | DeletePod
    | TouchPod
    | DeleteJob
)


@dataclass(frozen=True)
class Event:
    """An event of the object; type is Normal or Warning, reason a constant, message one sentence for people."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True)
class Decision:
    """Actions, the next status (None: leave it alone), events, and the seconds after which to look again."""

    actions: tuple[Action, ...] = ()
    status: Body | None = None
    events: tuple[Event, ...] = ()
    requeue_after: float | None = None
