"""HeteroTPJob: worker groups of unlike nodes that become one gang of tensor-parallel ranks."""

import re
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints
from pydantic.config import JsonDict

from heterotp_api.base import DNS_LABEL, MOST_SECONDS, DirectoryName, Metadata, Model, ObjectName, Rule
from heterotp_api.names import ATTEMPT_DIGITS, MAX_HOSTNAME
from heterotp_api.policy import BalancingSettings
from heterotp_api.reporting import Reporting
from heterotp_api.run_policy import RunPolicy
from heterotp_api.status import JobStatus
from heterotp_api.training import Training

MAP_LIST: JsonDict = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
COLLECTIVE_TIMEOUT_SECONDS = 300
Name = Annotated[str, StringConstraints(min_length=1, max_length=40, pattern=DNS_LABEL)]


class Device(Model):
    """What a rank computes on; `emulated` stands for an accelerator of chosen speed."""

    type: Literal["auto", "cpu", "cuda", "emulated"] = Field("auto", description="auto: cuda where there is one.")
    teraflops: float | None = Field(
        None, ge=1e-9, le=1e9, description="Speed of the emulated device, 1e12 operations a second."
    )
    fixed_seconds: float | None = Field(
        None, ge=0, le=3600, description="Emulated fixed part of an iteration, seconds."
    )
    link_bytes_per_second: float | None = Field(
        None, ge=1, le=1e15, description="Emulated link bandwidth, bytes/second."
    )
    link_latency_seconds: float | None = Field(
        None, ge=0, le=3600, description="Emulated latency of a collective, seconds."
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "device type emulated needs teraflops, e.g. 0.05",
            "self.type != 'emulated' || has(self.teraflops)",
            lambda d: d.type != "emulated" or d.teraflops is not None,
            "teraflops",
        ),
        Rule(
            "teraflops, fixedSeconds, linkBytesPerSecond and linkLatencySeconds are for device type emulated only",
            "self.type == 'emulated' || !(has(self.teraflops) || has(self.fixedSeconds) || "
            "has(self.linkBytesPerSecond) || has(self.linkLatencySeconds))",
            lambda d: d.type == "emulated" or not d._emulation_fields(),
        ),
    )

    def _emulation_fields(self) -> bool:
        fields = (self.teraflops, self.fixed_seconds, self.link_bytes_per_second, self.link_latency_seconds)
        return any(value is not None for value in fields)


class WorkerGroup(Model):
    """Pods of one kind of node; ranks are numbered group by group, pod by pod, process by process."""

    name: Name = Field(description="Part of the pods' names, and what targets and the live table call the group.")
    pods: int = Field(1, ge=1, le=1024, description="Pods of the group.")
    min_pods: int | None = Field(
        None, ge=1, le=1024, description="With Kueue: it may admit the group with so few pods; of one group at most."
    )
    processes_per_pod: int = Field(1, ge=1, le=16, description="Ranks in each pod; on GPUs as many as GPUs in it.")
    relative_speed: float | None = Field(
        None, ge=0.001, le=1000, description="Speed beside the other groups'; absent: probed at start."
    )
    device: Device = Device()
    template: dict[str, Any] = Field(
        default_factory=dict,
        description="PodTemplateSpec; the container named trainer is completed by the operator.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "minPods must be at most pods",
            "!has(self.minPods) || self.minPods <= self.pods",
            lambda g: g.min_pods is None or g.min_pods <= g.pods,
            "minPods",
        ),
    )


class PolicyRef(Model):
    """Names a BalancingPolicy of the same namespace."""

    name: ObjectName = Field(description="Name of the policy.")


class Balancing(Model):
    """Which policy balances the job; empty: the oldest selecting BalancingPolicy, else AUTO without loss."""

    policy_ref: PolicyRef | None = None
    policy: BalancingSettings | None = None

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "give policyRef or policy, not both",
            "!(has(self.policyRef) && has(self.policy))",
            lambda b: b.policy_ref is None or b.policy is None,
        ),
    )


SYSTEM = ("bin", "boot", "dev", "etc", "lib", "lib64", "proc", "sbin", "sys", "usr")  # holds no checkpoints
_OWN_DIRECTORY = "^/+[^/]"
_PARENT = "(^|/)[.][.]?(/|$)"
_SYSTEM_DIRECTORY = f"^/+({'|'.join(SYSTEM)})(/|$)"


def is_own_directory(path: str) -> bool:
    """Return whether a path is absolute, without `.` and `..`, and not one of the system's directories."""
    return bool(re.search(_OWN_DIRECTORY, path)) and not re.search(f"{_PARENT}|{_SYSTEM_DIRECTORY}", path)


class Checkpoint(Model):
    """Where and how often rank 0 writes checkpoints."""

    persistent_volume_claim: ObjectName | None = Field(
        None, description="A claim of the namespace; rank 0's pod alone mounts it."
    )
    path: DirectoryName | None = Field(None, description="A directory that rank 0 can write.")
    every_iterations: int | None = Field(None, ge=1, description="Also after so many iterations.")
    every_seconds: int = Field(600, ge=1, le=MOST_SECONDS, description="Seconds between two checkpoints.")
    keep: int = Field(2, ge=1, le=1000, description="Checkpoints that are kept, the newest ones.")
    adopt: bool | None = Field(  # absent, not false: a new field must not change the hash of running jobs
        None, description="true: continue from checkpoints of another job, which then writes there no more."
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "give persistentVolumeClaim or path, not both",
            "!(has(self.persistentVolumeClaim) && has(self.path))",
            lambda c: c.persistent_volume_claim is None or c.path is None,
        ),
        Rule(
            "path must be absolute, without '..', and outside of /, " + ", ".join(f"/{name}" for name in SYSTEM),
            f"!has(self.path) || (self.path.matches('{_OWN_DIRECTORY}')"
            f" && !self.path.matches('{_PARENT}') && !self.path.matches('{_SYSTEM_DIRECTORY}'))",
            lambda c: c.path is None or is_own_directory(c.path),
            "path",
        ),
    )


class Rendezvous(Model):
    """Where the ranks meet."""

    port: int = Field(29500, ge=1024, le=65535, description="Port of rank 0's pod.")


class Metrics(Model):
    """Where each rank serves /metrics and /status, and how much; local ranks count up from `port`."""

    port: int = Field(9400, ge=1024, le=65500, description="Port of the first rank in a pod.")
    level: Literal["basic", "full"] = Field("full", description="basic: few series a rank, for very large fleets.")


def _same(path: str) -> str:
    """Return CEL that holds when an optional field did not change (comparing optionals exceeds the CEL cost limit)."""
    parts = path.split(".")
    given = [
        " && ".join(f"has({who}.{'.'.join(parts[: n + 1])})" for n in range(len(parts))) for who in ("self", "oldSelf")
    ]
    new, old = (f"({g})" for g in given)
    return f"({new} ? {old} && self.{path} == oldSelf.{path} : !{old})"


def _frozen(*paths: str) -> tuple[Rule, ...]:
    """Fields of the running gang: they may change only while the job is suspended."""
    return tuple(
        Rule(
            f"{path} cannot change while the job runs; set runPolicy.suspend first",
            f"{_same(path)} || oldSelf.runPolicy.suspend",
            field=path.split(".")[0],
        )
        for path in paths
    )


def _same_groups(value: str) -> str:
    return f"self.workerGroups.map(g, {value}) == oldSelf.workerGroups.map(g, {value})"


def _elastic_rules() -> tuple[Rule, ...]:
    """What runPolicy.elastic does not work with; the API server refuses it whole, see RunPolicy."""

    def rule(message: str, holds: Callable[["HeteroTPJobSpec"], bool], field: str) -> Rule:
        return Rule(message, holds=lambda spec: spec.run_policy.elastic is None or holds(spec), field=field)

    return (
        rule(
            "runPolicy.elastic.minRanks must be at most tensorParallelDegree",
            lambda s: s.run_policy.elastic is not None and s.run_policy.elastic.min_ranks <= s.tensor_parallel_degree,
            "runPolicy.elastic.minRanks",
        ),
        rule(
            "runPolicy.elastic needs training, the built-in trainer: own programs are not supported",
            lambda s: s.training is not None,
            "runPolicy.elastic",
        ),
        rule(
            "training.model.huggingface is not supported with runPolicy.elastic: take a preset or sizes",
            lambda s: s.training is None or s.training.model.huggingface is None,
            "training.model.huggingface",
        ),
        rule(
            "runPolicy.elastic needs device type cpu or emulated on every worker group: NCCL is not supported",
            lambda s: all(group.device.type in ("cpu", "emulated") for group in s.worker_groups),
            "workerGroups",
        ),
    )


class HeteroTPJobSpec(Model):
    """What is trained, on which worker groups, under which policies."""

    tensor_parallel_degree: int = Field(ge=1, le=16384, description="Ranks of the gang.")
    worker_groups: list[WorkerGroup] = Field(
        min_length=1, max_length=18, json_schema_extra=MAP_LIST, description="Pods by kind of node."
    )
    training: Training | None = None
    balancing: Balancing = Balancing()
    checkpoint: Checkpoint | None = None
    run_policy: RunPolicy = RunPolicy()
    rendezvous: Rendezvous = Rendezvous()
    metrics: Metrics = Metrics()
    reporting: Reporting | None = None  # not an object by default: older trainers refuse the field

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "tensorParallelDegree must equal the sum of pods x processesPerPod over workerGroups",
            "self.tensorParallelDegree == self.workerGroups.map(g, g.pods * g.processesPerPod).sum()",
            lambda s: s.tensor_parallel_degree == s.process_count,
            "tensorParallelDegree",
        ),
        Rule(
            "workerGroups names must be unique",
            holds=lambda s: len({g.name for g in s.worker_groups}) == len(s.worker_groups),
            field="workerGroups",
        ),
        Rule(
            "minPods may be given for one worker group of a job: Kueue varies the count of one",
            "self.workerGroups.filter(g, has(g.minPods)).size() <= 1",
            lambda s: sum(g.min_pods is not None for g in s.worker_groups) <= 1,
            "workerGroups",
        ),
        Rule(
            "minPods needs runPolicy.gang with provider kueue and admission Workload",
            "self.workerGroups.all(g, !has(g.minPods))"
            " || self.runPolicy.gang.provider == 'kueue'"
            " && (!has(self.runPolicy.gang.admission) || self.runPolicy.gang.admission == 'Workload')",
            lambda s: s.run_policy.gang.makes_workload or all(g.min_pods is None for g in s.worker_groups),
            "workerGroups",
        ),
        Rule(
            "without training every group needs a template with the command to run",
            "has(self.training) || self.workerGroups.all(g, has(g.template))",
            lambda s: s.training is not None or all(g.template for g in s.worker_groups),
            "training",
        ),
        Rule(
            "rendezvous.port must lie outside of the ranks' metrics ports: metrics.port + 0 .. processesPerPod - 1",
            "self.workerGroups.all(g, self.rendezvous.port < self.metrics.port"
            " || self.rendezvous.port >= self.metrics.port + g.processesPerPod)",
            lambda s: all(
                not s.metrics.port <= s.rendezvous.port < s.metrics.port + g.processes_per_pod for g in s.worker_groups
            ),
            "rendezvous.port",
        ),
        Rule(
            "training.initialShares declared needs relativeSpeed on every worker group",
            "!has(self.training) || !has(self.training.initialShares) || self.training.initialShares != 'declared'"
            " || self.workerGroups.all(g, has(g.relativeSpeed))",
            lambda s: (
                s.training is None
                or s.training.initial_shares != "declared"
                or all(g.relative_speed is not None for g in s.worker_groups)
            ),
            "training",
        ),
        Rule(
            "give runPolicy.collectiveTimeoutSeconds or training.collectiveTimeoutSeconds, not both",
            "!(has(self.runPolicy.collectiveTimeoutSeconds) && has(self.training)"
            " && has(self.training.collectiveTimeoutSeconds))",
            lambda s: (
                s.run_policy.collective_timeout_seconds is None
                or s.training is None
                or s.training.collective_timeout_seconds is None
            ),
            "runPolicy.collectiveTimeoutSeconds",
        ),
        *_elastic_rules(),
        Rule(
            "workerGroups (name, pods, processesPerPod) cannot change while the job runs; set runPolicy.suspend first",
            f"{_same_groups('g.name')} && {_same_groups('g.pods * 17 + g.processesPerPod')}"
            " || oldSelf.runPolicy.suspend",
            field="workerGroups",
        ),
        *_frozen(
            "tensorParallelDegree",
            "training.model",
            "training.data",
            "checkpoint.persistentVolumeClaim",
            "checkpoint.path",
            "rendezvous.port",
            "metrics.port",
        ),
    )

    @property
    def process_count(self) -> int:
        """Number of ranks that the worker groups make."""
        return sum(group.pods * group.processes_per_pod for group in self.worker_groups)

    @property
    def collective_timeout_seconds(self) -> int:
        """How long ranks wait for each other, seconds: of runPolicy, else of training, else 300."""
        of_training = self.training.collective_timeout_seconds if self.training is not None else None
        return self.run_policy.collective_timeout_seconds or of_training or COLLECTIVE_TIMEOUT_SECONDS

    @property
    def initial_shares(self) -> str:
        """The rule for the first plan: as given, else declared where every group has a speed, else probe."""
        if self.training is not None and self.training.initial_shares is not None:
            return self.training.initial_shares
        declared = all(group.relative_speed is not None for group in self.worker_groups)
        return "declared" if declared else "probe"


def _longest_hostname(job: "HeteroTPJob") -> int:
    groups = job.spec.worker_groups
    tail = max(len(group.name) + len(str(group.pods - 1)) for group in groups)
    return len(job.metadata.name) + tail + 3 + ATTEMPT_DIGITS


_NAME_PATTERN = "^[a-z]([-a-z0-9]*[a-z0-9])?$"


def _is_dns_label(name: str) -> bool:
    return re.fullmatch(_NAME_PATTERN, name) is not None


class HeteroTPJob(Model):
    """One tensor-parallel training job."""

    api_version: Literal["heterotp.io/v1alpha1"]
    kind: Literal["HeteroTPJob"]
    metadata: Metadata
    spec: HeteroTPJobSpec
    status: JobStatus | None = None

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "metadata.name must start with a letter and hold only lower-case letters, digits and '-'",
            f"self.metadata.name.matches('{_NAME_PATTERN}')",
            lambda j: _is_dns_label(j.metadata.name),
            "metadata.name",
        ),
        Rule(
            f"metadata.name is too long: <name>-<group>-<index>-<attempt> must fit into {MAX_HOSTNAME} characters "
            f"with {ATTEMPT_DIGITS} kept for the attempt",
            f"self.spec.workerGroups.all(g, size(self.metadata.name) + size(g.name) + size(string(g.pods - 1)) + "
            f"{3 + ATTEMPT_DIGITS} <= {MAX_HOSTNAME})",
            lambda j: _longest_hostname(j) <= MAX_HOSTNAME,
            "metadata.name",
        ),
    )
