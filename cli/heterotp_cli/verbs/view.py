"""What the verbs show of a job, wherever it runs: one shape for a HeteroTPJob and for a run directory. All pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from heterotp_api.job import Device
from heterotp_api.ranks import RankPlace
from heterotp_api.trainer_status import TrainerStatus
from pydantic.alias_generators import to_camel

from heterotp_cli.workdir import UNFINISHED

TELLING = ("Straggling", "ReplacementAdvised")  # conditions whose message is worth a line while they hold
ENDED = ("succeeded", "failed", "stopped", UNFINISHED)
Body = Mapping[str, Any]
Picked = TypeVar("Picked")


@dataclass(frozen=True)
class RankView:
    """One rank; None is what is not known. Field names are those of the API, in which `slowdown` is chi."""

    rank: int
    group: str | None = None
    pod: str | None = None
    node: str | None = None
    device: str | None = None
    share: float | None = None
    compute_seconds: float | None = None
    matmul_seconds: float | None = None
    wait_seconds: float | None = None
    relative_speed: float | None = None
    slowdown: float | None = None
    straggler: bool = False
    straggling_since: str | None = None
    pruned_ratio: float | None = None
    migrated_ratio: float | None = None
    columns_in: int | None = None
    heads: int | None = None
    hidden_units: int | None = None
    injected_slowdown: float | None = None
    measured_slowdown: float | None = None
    injection_problem: str = ""

    @property
    def relieved(self) -> bool:
        """Whether any of its work is deleted or done by others."""
        return bool(self.pruned_ratio or self.migrated_ratio)

    @property
    def injected(self) -> bool:
        """Whether it is slowed on purpose."""
        return (self.injected_slowdown or 1.0) > 1.0


@dataclass(frozen=True)
class Advice:
    """A condition that holds, in the operator's words."""

    condition: str
    message: str


@dataclass(frozen=True)
class JobView:
    """One job; None is what is not known. `state` is the phase of a HeteroTPJob, else the state of the run."""

    name: str
    namespace: str | None = None
    state: str = ""
    waiting_for: str = ""
    message: str = ""
    emulated: bool = False
    attempt: int | None = None
    rank_count: int | None = None
    epoch: int | None = None
    iteration: int | None = None
    total_iterations: int | None = None
    iteration_seconds: float | None = None
    predicted_iteration_seconds: float | None = None
    limit_iteration_seconds: float | None = None
    untouched_iteration_seconds: float | None = None
    saved_seconds: float | None = None
    moves: int | None = None
    loss: float | None = None
    accuracy: float | None = None
    eta_seconds: float | None = None
    policy: str | None = None
    strategy: str | None = None
    generation: int | None = None
    applied_generation: int | None = None
    reason: str = ""
    refused: str = ""
    advice: tuple[Advice, ...] = ()
    ranks: tuple[RankView, ...] = ()

    @property
    def running(self) -> bool:
        """Whether it trains."""
        return self.state.lower() == "running"

    @property
    def ended(self) -> bool:
        """Whether nothing will change any more."""
        return self.state.lower() in ENDED

    @property
    def by_slowdown(self) -> tuple[RankView, ...]:
        """The ranks, the slowest first; what looks alike stays in order, so that a watched table does not jump."""
        return tuple(sorted(self.ranks, key=lambda rank: (-round(rank.slowdown or 0.0, 1), rank.rank)))


def places_of(groups: Sequence[Body]) -> tuple[RankPlace, ...]:
    """Return all ranks of worker groups in order; asks of a group only what numbers and names its ranks."""
    places: list[RankPlace] = []
    for number, group in enumerate(groups):
        given = group.get("device") or {}
        device = Device.model_construct(type=given.get("type", "auto"), teraflops=given.get("teraflops"))
        processes = int(group.get("processesPerPod", 1))
        for index in range(int(group.get("pods", 1)) * processes):
            pod, local = divmod(index, processes)
            places.append(RankPlace(len(places), str(group.get("name")), number, pod, local, device, None))
    return tuple(places)


def of_job(body: Body) -> JobView:
    """Return the view of a HeteroTPJob as the API server holds it: its schema has judged the types, not what is there.

    Raises nothing for what is absent.
    """
    metadata, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    told = {part: status.get(part) or {} for part in ("training", "balancing")}
    places = places_of(spec.get("workerGroups") or ())
    conditions = {c["type"]: c for c in status.get("conditions") or () if c.get("status") == "True"}
    found = _picked(JobView, told["training"]) | _picked(JobView, told["balancing"]) | _picked(JobView, status)
    found |= {
        "name": metadata["name"],
        "namespace": metadata.get("namespace"),
        "state": status.get("phase") or "",
        "message": (conditions.get("Failed") or {}).get("message") or "",
        "rank_count": spec.get("tensorParallelDegree"),
        "refused": told["balancing"].get("problem") or "",
        "advice": tuple(Advice(kind, conditions[kind].get("message") or "") for kind in TELLING if kind in conditions),
        "ranks": tuple(_rank(_picked(RankView, rank), places) for rank in status.get("ranks") or ()),
        "emulated": any(place.device.type == "emulated" for place in places),
    }
    return JobView(**found)


def of_run(status: TrainerStatus, groups: Sequence[Body], state: str) -> JobView:
    """Return the view of a run directory; `state` is how the run stands, which its last status may not know."""
    places = places_of(groups)
    found = _of_model(JobView, status) | {
        "name": status.job,
        "state": state,
        "rank_count": len(places) or len(status.ranks) or None,
        "generation": status.control_generation,
        "refused": status.control_error,
        "ranks": tuple(_rank(_of_model(RankView, rank), places) for rank in status.ranks),
    }
    return JobView(**found)


def _rank(found: dict[str, Any], places: Sequence[RankPlace]) -> RankView:
    """Return one rank, completed by where it lives."""
    number = found["rank"]
    device = str(found.get("device") or "").removeprefix("cuda:") or None
    if number < len(places):
        place = places[number].device
        found |= {"group": places[number].group}
        if place.type == "emulated" and place.teraflops is not None:
            device = f"emulated {place.teraflops:g} TFLOPS"
    return RankView(**{**found, "device": device})


def _picked(kind: type[Picked], body: Body) -> dict[str, Any]:
    """Return those fields of a dataclass that a body in camelCase gives."""
    given = {field.name: body.get(to_camel(field.name)) for field in fields(kind)}  # type: ignore[arg-type]
    return {name: value for name, value in given.items() if value is not None}


def _of_model(kind: type[Picked], model: Any) -> dict[str, Any]:
    """Return those fields of a dataclass that a model has, too."""
    return {f.name: getattr(model, f.name) for f in fields(kind) if hasattr(model, f.name)}  # type: ignore[arg-type]
