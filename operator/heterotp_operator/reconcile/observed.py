"""All that a decision about one job may read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, Protocol

from heterotp_api.job import HeteroTPJobSpec
from heterotp_api.last_words import trainer_status
from heterotp_api.names import CONTAINER, LABEL_ATTEMPT, LABEL_FIRST_RANK
from heterotp_api.ranks import PodPlace, pods
from heterotp_api.trainer_status import TrainerStatus
from pydantic import ValidationError

from heterotp_operator.reconcile.control import Effective

Body = dict[str, Any]


class PlanSettings(Protocol):
    """The settings of the operator that decisions need."""

    @property
    def trainer_image(self) -> str:
        """Image of a rank whose template names none."""

    @property
    def injection_lease_seconds(self) -> float:
        """Seconds for which injections hold without a poll by the operator."""


# why a poll of rank 0 failed
PollFailure = Literal["", "NoConnection", "HttpError", "TooLong", "Malformed"]


@dataclass(frozen=True)
class TrainerReport:
    """Rank 0's last answer; where the last poll failed, status is None, and error is the reason for people.

    `since`: unix seconds of the change between answers and failures; `failure`: the kind of failure, empty: none.
    """

    status: TrainerStatus | None
    error: str
    since: float
    failure: PollFailure = ""


@dataclass(frozen=True)
class Refusal:
    """The API server's answer to a child that it does not accept: HTTP code, reason and message of its Status."""

    code: int
    reason: str
    message: str


@dataclass(frozen=True)
class Observed:
    """One job and its children at one moment; `now` is unix seconds."""

    job: Body
    pods: tuple[Body, ...]
    service: Body | None
    configmap: Body | None
    podgroup: Body | None
    control: Effective | None  # what its ranks shall follow; None: not decided yet, or the spec is invalid
    trainer: TrainerReport | None
    now: float
    settings: PlanSettings
    policies: tuple[Body, ...] = ()  # of the job's namespace, as are injections
    injections: tuple[Body, ...] = ()
    refusals: Mapping[str, Refusal] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The job's name."""
        return str(self.job["metadata"]["name"])

    @property
    def uid(self) -> str:
        """The job's uid."""
        return str(self.job["metadata"]["uid"])

    @property
    def status(self) -> Body:
        """The status as it is on the API server."""
        return self.job.get("status") or {}

    @property
    def attempt(self) -> int:
        """The current attempt; 0 before the first."""
        return int(self.status.get("attempt") or 0)

    @property
    def restarts(self) -> int:
        """Restarts that count."""
        return int(self.status.get("restarts") or 0)

    @cached_property
    def spec(self) -> HeteroTPJobSpec:
        """The validated spec; raises pydantic.ValidationError."""
        return HeteroTPJobSpec.model_validate(self.job["spec"])

    @property
    def is_valid(self) -> bool:
        """Whether the spec is valid."""
        try:
            return bool(self.spec)
        except ValidationError:
            return False

    @cached_property
    def places(self) -> tuple[PodPlace, ...]:
        """The pods that the gang consists of."""
        return pods(self.spec)

    @cached_property
    def own(self) -> tuple[Body, ...]:
        """Pods of this job, of whatever attempt."""
        return tuple(pod for pod in self.pods if owner_uid(pod) == self.uid)

    @cached_property
    def foreign(self) -> tuple[Body, ...]:
        """Pods of an earlier job of the same name, which are being deleted."""
        return tuple(pod for pod in self.pods if owner_uid(pod) != self.uid)

    @cached_property
    def current(self) -> tuple[Body, ...]:
        """Pods of the current attempt."""
        return tuple(pod for pod in self.own if attempt_of(pod) == self.attempt)

    @cached_property
    def old(self) -> tuple[Body, ...]:
        """Pods of other attempts."""
        return tuple(pod for pod in self.own if attempt_of(pod) != self.attempt)

    @cached_property
    def trainer_status(self) -> TrainerStatus | None:
        """Rank 0's last status document of this attempt: what it left when it ended, else its last answer."""
        leaders = (pod for pod in self.current if first_rank_of(pod) == 0)
        polled = self.trainer.status if self.trainer is not None else None
        found = next((left for pod in leaders if (left := _last_status(pod))), polled)
        return found if found is not None and found.attempt == self.attempt else None

    @cached_property
    def pod_of(self) -> dict[int, Body]:
        """The pod of each rank of the current attempt that has one."""
        by_first = {first_rank_of(pod): pod for pod in self.current}
        return {
            place.first_rank + local: by_first[place.first_rank]
            for place in self.places
            if place.first_rank in by_first
            for local in range(place.processes)
        }

    @cached_property
    def nodes(self) -> dict[int, str]:
        """The node of each rank of the current attempt whose pod has one."""
        found = {rank: pod.get("spec", {}).get("nodeName") for rank, pod in self.pod_of.items()}
        return {rank: str(node) for rank, node in found.items() if node}

    @property
    def effective(self) -> Effective:
        """What the job's ranks shall follow; only of a job whose spec is valid."""
        assert self.control is not None
        return self.control

    def condition(self, kind: str) -> Body:
        """Return a condition of the live status; an empty one when absent."""
        return next((c for c in self.status.get("conditions") or () if c["type"] == kind), {})

    def holds(self, kind: str) -> bool:
        """Return whether a condition of the live status is True."""
        return bool(self.condition(kind).get("status") == "True")


def owner_uid(pod: Body) -> str:
    """Return the uid of a pod's controller."""
    references = pod["metadata"].get("ownerReferences") or ()
    return next((str(reference["uid"]) for reference in references if reference.get("controller")), "")


def attempt_of(pod: Body) -> int:
    """Return the attempt that a pod belongs to."""
    text = pod["metadata"].get("labels", {}).get(LABEL_ATTEMPT, "")
    return int(text) if text.isdigit() else -1


def first_rank_of(pod: Body) -> int:
    """Return the first rank that starts in a pod."""
    return int(pod["metadata"]["labels"].get(LABEL_FIRST_RANK, "-1"))


def terminating(pod: Body) -> bool:
    """Return whether the pod was deleted and still exists."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def phase(pod: Body) -> str:
    """Return the pod's phase."""
    return str(pod.get("status", {}).get("phase") or "Pending")


def ended(pod: Body) -> bool:
    """Return whether all processes of the pod have ended."""
    return phase(pod) in ("Succeeded", "Failed")


def _last_status(pod: Body) -> TrainerStatus | None:
    """Return the status document that a trainer left when it ended; None while it runs or when it left none."""
    for container in pod.get("status", {}).get("containerStatuses", ()):
        if container.get("name") == CONTAINER:
            return trainer_status(((container.get("state") or {}).get("terminated") or {}).get("message") or "")
    return None


def seconds(stamp: str | None) -> float | None:
    """Return a Kubernetes time stamp as unix seconds."""
    if not stamp:
        return None
    return datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()


def stamp(now: float) -> str:
    """Return unix seconds as a Kubernetes time stamp."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
