"""All that a decision about one job may read."""

import json
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, Protocol

from heterotp_api.base import without_nulls
from heterotp_api.job import HeteroTPJobSpec
from heterotp_api.last_words import trainer_status
from heterotp_api.load import first_error
from heterotp_api.names import ANNOTATION_SECRET, CONTAINER, LABEL_ATTEMPT, LABEL_FIRST_RANK
from heterotp_api.ranks import PodPlace, pods
from heterotp_api.schema import unset_undeclared
from heterotp_api.trainer_status import TrainerStatus
from pydantic import ValidationError

from heterotp_operator.reconcile.control import Effective
from heterotp_operator.reconcile.gang_hash import gang_hashes
from heterotp_operator.reconcile.gang_secret import OperatorKey
from heterotp_operator.reconcile.kueue.admission import KueueRecords, admitted_pods
from heterotp_operator.reconcile.kueue.own_names import POD_GROUP
from heterotp_operator.reconcile.network_peers import NetworkPeers
from heterotp_operator.reconcile.objects import REFUSED
from heterotp_operator.reconcile.packed import with_templates

Body = dict[str, Any]
# field path below spec (empty: the spec itself; None: the message names it), value, and what would be right
SpecError = tuple[str | None, Any, str]


class PlanSettings(Protocol):
    """The settings of the operator that decisions need."""

    @property
    def trainer_image(self) -> str:
        """Image of a rank whose template names none."""

    @property
    def injection_lease_seconds(self) -> float:
        """Seconds for which injections hold without a poll by the operator."""

    @property
    def kueue(self) -> str:
        """Whether the operator may use Kueue's Workloads: on or off."""

    @property
    def network_peers(self) -> NetworkPeers | None:
        """Who may connect to ranks; None: the operator has nothing to do with NetworkPolicies."""


NO_RECORDS = KueueRecords()
# why a poll of rank 0 failed: nothing came within its time, or what came cannot be used
PollFailure = Literal["", "NoAnswer", "BadAnswer"]


@dataclass(frozen=True)
class TrainerReport:
    """Rank 0's last answer; where the last poll failed, status is None, and failure its kind.

    `since`: unix seconds of the change between answers and failures.
    """

    status: TrainerStatus | None
    failure: PollFailure
    since: float


@dataclass(frozen=True)
class Progress:
    """What this process saw of rank 0's pod, in seconds of its own clock.

    idle: since another iteration was reported; silent: since the last answer. cut_off: no job is within
    reach, so that the network may be to blame.
    """

    idle: float
    silent: float
    cut_off: bool = False


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
    # pod uid -> seconds since this process first saw it terminate, by its own clock that never goes back
    terminating_for: Mapping[str, float] = field(default_factory=dict)
    ended_for: Mapping[str, float] = field(default_factory=dict)  # the same of containers and pods that ended badly
    networkpolicy: Body | None = None
    key: OperatorKey | None = None  # the operator's own; None: ranks get no secret
    kueue: KueueRecords = NO_RECORDS
    progress: Progress | None = None  # None: rank 0's pod has not answered yet
    accepted: Container[tuple[str, str]] = ()  # template_key of pods that the API server took lately

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
    def _parsed(self) -> HeteroTPJobSpec | SpecError:
        if REFUSED in self.job:
            return None, None, str(self.job[REFUSED])
        try:
            return HeteroTPJobSpec.model_validate(with_templates(self.job["spec"]))
        except ValidationError as error:
            return first_error(error)
        except Exception as error:  # whatever a job holds: it is the job's fault, and shown as that
            return "", None, f"cannot be read: {type(error).__name__}"

    @property
    def asked(self) -> HeteroTPJobSpec:
        """The validated spec as it is given; only of a job whose spec is valid."""
        assert isinstance(self._parsed, HeteroTPJobSpec)
        return self._parsed

    @cached_property
    def spec(self) -> HeteroTPJobSpec:
        """The validated spec, with as many pods of each group as are admitted."""
        asked = self.asked
        if not asked.run_policy.gang.makes_workload or all(group.min_pods is None for group in asked.worker_groups):
            return asked
        counts = [admitted_pods(self.kueue.workload, g.name, g.min_pods, g.pods) for g in asked.worker_groups]
        sized = zip(asked.worker_groups, counts, strict=True)
        given = asked.model_copy(update={"worker_groups": [g.model_copy(update={"pods": pods}) for g, pods in sized]})
        return given.model_copy(update={"tensor_parallel_degree": given.process_count})

    @cached_property
    def queued(self) -> bool:
        """Whether the pods of the job wait for the admission of its Workload; only of a job whose spec is valid.

        A gang that an older operator made as a pod group ends as one.
        """
        grouped = any(POD_GROUP in (pod["metadata"].get("labels") or {}) for pod in self.current)
        return self.asked.run_policy.gang.makes_workload and not grouped

    @property
    def spec_error(self) -> SpecError | None:
        """What is wrong with the spec; None: it is valid."""
        return None if isinstance(self._parsed, HeteroTPJobSpec) else self._parsed

    @property
    def is_valid(self) -> bool:
        """Whether the spec is valid."""
        return self.spec_error is None

    @cached_property
    def templates(self) -> tuple[Body, ...]:
        """The template of each worker group without fields that are null; all pods share them: nobody changes them."""
        return tuple(without_nulls(group.template) for group in self.spec.worker_groups)

    @cached_property
    def slim_spec(self) -> str:
        """The spec as ranks read it, without what is the operator's alone: older trainers refuse unknown fields."""
        left_out = unset_undeclared(self.spec) | {"worker_groups": {"__all__": {"template", "min_pods"}}}
        left_out["run_policy"] = {"gang": True}
        slim = self.spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=left_out)
        return json.dumps(slim, separators=(",", ":"))

    @cached_property
    def places(self) -> tuple[PodPlace, ...]:
        """The pods that the gang consists of."""
        return pods(self.spec)

    @cached_property
    def hashes(self) -> tuple[str, str]:
        """What only a suspended job may change, and all that an attempt freezes, as hashes."""
        return gang_hashes(self.spec, self.settings.trainer_image)

    @property
    def template_hash(self) -> str:
        """The label of pods that tells of which template they are."""
        return ".".join(self.hashes)

    @property
    def template_key(self) -> tuple[str, str]:
        """Namespace and all that decides whether the API server takes the pods: templates and what marks the gang."""
        marks = self.asked.run_policy.gang.model_dump_json(exclude_none=True)
        return self.job["metadata"].get("namespace", ""), f"{self.template_hash}/{marks}"

    @property
    def is_accepted(self) -> bool:
        """Whether the API server has accepted such pods and refuses none."""
        return self.template_key in self.accepted and not self.refusals

    @cached_property
    def secret_id(self) -> str:
        """Which key the secret of the current attempt is of; empty: a gang that began without one goes on so."""
        ids = {secret_id_of(pod) for pod in self.current}
        return "" if self.key is None or ids == {""} else self.key.id

    @cached_property
    def own(self) -> tuple[Body, ...]:
        """Pods of this job, of whatever attempt."""
        return tuple(pod for pod in self.pods if owner_uid(pod) == self.uid)

    @cached_property
    def foreign(self) -> tuple[Body, ...]:
        """Pods of another owner, most likely of an earlier job of the same name, which are being deleted."""
        return tuple(pod for pod in self.pods if owner_uid(pod) != self.uid)

    @cached_property
    def left_behind(self) -> tuple[Body, ...]:
        """Foreign pods of an earlier job of the same name: a garbage collector may have missed the end of that job."""
        kind, name = self.job.get("kind"), self.name
        return tuple(pod for pod in self.foreign if (kind, name) == (_owner(pod).get("kind"), _owner(pod).get("name")))

    @cached_property
    def current(self) -> tuple[Body, ...]:
        """Pods of the current attempt."""
        attempt = self.attempt
        return tuple(pod for pod in self.own if attempt_of(pod) == attempt)

    @cached_property
    def old(self) -> tuple[Body, ...]:
        """Pods of other attempts."""
        attempt = self.attempt
        return tuple(pod for pod in self.own if attempt_of(pod) != attempt)

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

    def with_control(self, control: Effective | None) -> "Observed":
        """Return the same with its control document; what was read of it already is not read again."""
        decided = replace(self, control=control)
        given = {each.name for each in fields(self)}
        vars(decided).update({name: value for name, value in vars(self).items() if name not in given})
        return decided

    def condition(self, kind: str) -> Body:
        """Return a condition of the live status; an empty one when absent."""
        return next((c for c in self.status.get("conditions") or () if c["type"] == kind), {})

    def holds(self, kind: str) -> bool:
        """Return whether a condition of the live status is True."""
        return bool(self.condition(kind).get("status") == "True")


def owner_uid(pod: Body) -> str:
    """Return the uid of a pod's controller."""
    return str(_owner(pod).get("uid", ""))


def _owner(pod: Body) -> Body:
    references = pod["metadata"].get("ownerReferences") or ()
    return next((reference for reference in references if reference.get("controller")), {})


def attempt_of(pod: Body) -> int:
    """Return the attempt that a pod belongs to."""
    return _number_of(pod, LABEL_ATTEMPT)


def first_rank_of(pod: Body) -> int:
    """Return the first rank that starts in a pod; -1 where its label is none."""
    return _number_of(pod, LABEL_FIRST_RANK)


def _number_of(pod: Body, label: str) -> int:
    """Return the number that a label holds, -1 for another text: anybody can write labels."""
    text = str((pod["metadata"].get("labels") or {}).get(label, ""))
    return int(text) if text.isascii() and text.isdecimal() else -1


def secret_id_of(pod: Body) -> str:
    """Return which key a pod's secret is of; empty: it has none."""
    return str((pod["metadata"].get("annotations") or {}).get(ANNOTATION_SECRET, ""))


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
