"""What the verbs show of a job: one data class for a HeteroTPJob and for a run directory. All pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from heterotp_api.conditions import FAILED, REPLACEMENT_ADVISED, STALLED, STRAGGLING
from heterotp_api.gang_text import gang_text
from heterotp_api.job import Device
from heterotp_api.ranks import RankPlace
from heterotp_api.reasons import CONTROL_REFUSED
from heterotp_api.trainer_status import TrainerStatus
from pydantic.alias_generators import to_camel

from heterotp_cli.rows import stall
from heterotp_cli.workdir import UNFINISHED

SHOWN_CONDITIONS = (STRAGGLING, REPLACEMENT_ADVISED)  # whose message is shown while they are True
ENDED = ("succeeded", "failed", "stopped", UNFINISHED)
Body = Mapping[str, Any]
Picked = TypeVar("Picked")


@dataclass(frozen=True)
class RankView:
    """One rank; None where a value is not known. Names are those of the API, where `slowdown` is chi."""

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
    vocabulary_rows: int | None = None
    injected_slowdown: float | None = None
    measured_slowdown: float | None = None
    injection_problem: str = ""

    @property
    def has_reduced_work(self) -> bool:
        """Whether part of its work is pruned or migrated to other ranks."""
        return bool(self.pruned_ratio or self.migrated_ratio)

    @property
    def injected(self) -> bool:
        """Whether an injection slows it."""
        return (self.injected_slowdown or 1.0) > 1.0


@dataclass(frozen=True)
class BlameView:
    """A rank and a stage that the others wait for; seconds of an iteration."""

    rank: int
    stage: str
    seconds: float


@dataclass(frozen=True)
class CauseView:
    """Why a rank is slow; see CauseStatus."""

    rank: int
    kind: str
    share: float
    amount: float | None = None


@dataclass(frozen=True)
class Advice:
    """A condition of the job that is True, with the operator's message."""

    condition: str
    message: str


@dataclass(frozen=True)
class JobView:
    """One job; None where a value is not known. `state` is the phase of a HeteroTPJob, or the state of a run.

    `problem` is why the ranks do not follow what was asked for, `problem_reason` its constant of the api; where they
    refused a control document, `problem_generation` is that document's. `stall` tells since when no iteration has
    ended, and where the ranks are; empty while iterations end. `gang` tells who is left of a gang that may lose ranks;
    empty while all live. `live`: their numbers, empty where none can be lost. Ranks have the numbers that they started
    with, also those of `ranks`, `blame` and `causes`.
    """

    name: str
    namespace: str | None = None
    state: str = ""
    waiting_for: str = ""
    message: str = ""
    stall: str = ""
    gang: str = ""
    live: tuple[int, ...] = ()
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
    perplexity: float | None = None
    eta_seconds: float | None = None
    policy: str | None = None
    strategy: str | None = None
    generation: int | None = None
    applied_generation: int | None = None
    reason: str = ""
    problem: str = ""
    problem_reason: str = ""
    problem_generation: int | None = None
    lost_seconds: float | None = None
    blame: tuple[BlameView, ...] = ()
    causes: tuple[CauseView, ...] = ()
    advice: tuple[Advice, ...] = ()
    ranks: tuple[RankView, ...] = ()

    @property
    def running(self) -> bool:
        """Whether it trains."""
        return self.state.lower() == "running"

    @property
    def ended(self) -> bool:
        """Whether it has ended and changes no more."""
        return self.state.lower() in ENDED

    @property
    def by_slowdown(self) -> tuple[RankView, ...]:
        """The ranks, the slowest first; equal rounded chi in rank order, so that a watched table is stable."""
        return tuple(sorted(self.ranks, key=lambda rank: (-round(rank.slowdown or 0.0, 1), rank.rank)))


def places_of(groups: Sequence[Body]) -> tuple[RankPlace, ...]:
    """Return all ranks of worker groups in order; reads only pods, processes, name and device of a group."""
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
    """Return the view of a HeteroTPJob from the API server, whose schema has checked types; any field may be absent."""
    metadata, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    reported = {part: status.get(part) or {} for part in ("training", "balancing")}
    places = places_of(spec.get("workerGroups") or ())
    conditions = {c["type"]: c for c in status.get("conditions") or () if c.get("status") == "True"}
    found = _picked(JobView, reported["training"]) | _picked(JobView, reported["balancing"]) | _picked(JobView, status)
    found |= {
        "name": metadata["name"],
        "namespace": metadata.get("namespace"),
        "state": status.get("phase") or "",
        "message": (conditions.get(FAILED) or {}).get("message") or "",
        "stall": (conditions.get(STALLED) or {}).get("message") or "",
        "rank_count": spec.get("tensorParallelDegree"),
        "blame": tuple(BlameView(**_picked(BlameView, each)) for each in status.get("blame") or ()),
        "causes": tuple(CauseView(**_picked(CauseView, each)) for each in status.get("causes") or ()),
        "advice": tuple(
            Advice(kind, conditions[kind].get("message") or "") for kind in SHOWN_CONDITIONS if kind in conditions
        ),
        "ranks": tuple(_rank(_picked(RankView, rank), places) for rank in status.get("ranks") or ()),
        "emulated": any(place.device.type == "emulated" for place in places),
    }
    return JobView(**found)


def of_run(status: TrainerStatus, groups: Sequence[Body], state: str) -> JobView:
    """Return the view of a run directory; `state` is the state of the run, which may differ from the last status's."""
    places, live = places_of(groups), status.gang.members if status.gang is not None else ()
    found = _of_model(JobView, status) | {
        "live": live,
        "name": status.job,
        "state": state,
        "stall": "" if state in ENDED else stall(status),
        "gang": "" if state in ENDED else gang_text(status.gang),
        "rank_count": len(places) or len(status.ranks) or None,
        "generation": status.control_generation,
        "blame": tuple(BlameView(started(each.rank, live), each.stage, each.steady_seconds) for each in status.blame),
        "causes": tuple(CauseView(**_numbered(CauseView, each, live)) for each in status.causes),
        "problem": status.control_error,
        "problem_reason": CONTROL_REFUSED if status.control_error else "",
        "problem_generation": status.control_error_generation,
        "ranks": tuple(_rank(_numbered(RankView, rank, live), places) for rank in status.ranks),
    }
    return JobView(**found)


def started(rank: int, live: Sequence[int]) -> int:
    """Return the number that a rank started with; live: those of the ranks that are left, empty: of all."""
    return live[rank] if rank < len(live) else rank


def _numbered(kind: type[Any], model: Any, live: Sequence[int]) -> dict[str, Any]:
    found = _of_model(kind, model)
    return found | {"rank": started(found["rank"], live)}


def _rank(found: dict[str, Any], places: Sequence[RankPlace]) -> RankView:
    """Return one rank, completed by its group and device."""
    number = found["rank"]
    device = str(found.get("device") or "").removeprefix("cuda:") or None
    if number < len(places):
        place = places[number].device
        found |= {"group": places[number].group}
        if place.type == "emulated" and place.teraflops is not None:
            device = f"emulated {place.teraflops:g} TFLOPS"
    return RankView(**{**found, "device": device})


def _picked(kind: type[Picked], body: Body) -> dict[str, Any]:
    """Return the fields of a dataclass that a body with camelCase keys holds."""
    given = {field.name: body.get(to_camel(field.name)) for field in fields(kind)}  # type: ignore[arg-type]
    return {name: value for name, value in given.items() if value is not None}


def _of_model(kind: type[Picked], model: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that a model also has."""
    return {f.name: getattr(model, f.name) for f in fields(kind) if hasattr(model, f.name)}  # type: ignore[arg-type]
