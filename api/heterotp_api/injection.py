"""StragglerInjection: slows ranks on purpose, to prove that balancing works."""

from typing import ClassVar, Literal

from pydantic import Field

from heterotp_api.base import MOST_SECONDS, Metadata, Model, ObjectName, Rule
from heterotp_api.conditions import CONDITIONS, Condition
from heterotp_api.policy import LabelSelector
from heterotp_api.slowdown import MOST_SLOWDOWN, SlowdownMode
from heterotp_api.strategy_blocks import Ranks


class JobRef(Model):
    """Names a HeteroTPJob of the same namespace."""

    name: ObjectName = Field(description="Name of the job.")


class Targets(Model):
    """Which ranks: one of the four ways."""

    ranks: Ranks | None = Field(None, description="Ranks by number.")
    worker_groups: list[ObjectName] | None = Field(
        None, min_length=1, max_length=18, description="All ranks of these groups."
    )
    nodes: list[ObjectName] | None = Field(
        None, min_length=1, max_length=256, description="All ranks on these nodes, looked up anew for each attempt."
    )
    count: int | None = Field(None, ge=1, le=16384, description="So many ranks, drawn at random.")
    seed: int | None = Field(None, description="Seed of the draw; absent: 0.")

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "give one of ranks, workerGroups, nodes, count",
            "[has(self.ranks), has(self.workerGroups), has(self.nodes), has(self.count)].filter(x, x).size() == 1",
            lambda t: sum(v is not None for v in (t.ranks, t.worker_groups, t.nodes, t.count)) == 1,
        ),
        Rule(
            "seed belongs to count",
            "!has(self.seed) || has(self.count)",
            lambda t: t.seed is None or t.count is not None,
            "seed",
        ),
    )


class Every(Model):
    """A period, in iterations or epochs."""

    iterations: int | None = Field(None, ge=1, description="Since the run took the injection.")
    epochs: int | None = Field(None, ge=1, description="The run's own epochs.")

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "give iterations or epochs",
            "has(self.iterations) != has(self.epochs)",
            lambda e: (e.iterations is None) != (e.epochs is None),
        ),
    )


class RoundRobin(Model):
    """The slow-down moves from target to target, in their order."""

    every: Every


class RandomPattern(Model):
    """The slow-down moves to a target drawn at random."""

    seed: int = Field(0, description="Seed of the draws, the same on all ranks.")
    every: Every


class Pattern(Model):
    """How the slow-down moves among the targets; empty: it stays (fixed)."""

    fixed: bool | None = Field(None, description="All targets, all the time.")
    round_robin: RoundRobin | None = None
    random: RandomPattern | None = None

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "give at most one of fixed, roundRobin, random",
            "[has(self.fixed), has(self.roundRobin), has(self.random)].filter(x, x).size() <= 1",
            lambda p: sum(v is not None for v in (p.fixed, p.round_robin, p.random)) <= 1,
        ),
    )


class Moment(Model):
    """A point in a run: an iteration, or seconds since the injection took effect."""

    iteration: int | None = Field(None, ge=0, description="The run's own iteration.")
    seconds: float | None = Field(None, ge=0, le=MOST_SECONDS, description="Since the injection took effect.")

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "give iteration or seconds",
            "has(self.iteration) != has(self.seconds)",
            lambda m: (m.iteration is None) != (m.seconds is None),
        ),
    )


def _ordered(slowdown: "Slowdown") -> bool:
    start, stop = slowdown.start, slowdown.stop
    if start is None or stop is None:
        return True
    if start.iteration is not None and stop.iteration is not None:
        return start.iteration < stop.iteration
    if start.seconds is not None and stop.seconds is not None:
        return start.seconds < stop.seconds
    return True


class InjectedRanks(Model):
    """Which ranks of which jobs."""

    job_ref: JobRef | None = None
    selector: LabelSelector | None = None
    targets: Targets

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "give jobRef or selector, one of them",
            "has(self.jobRef) != has(self.selector)",
            lambda a: (a.job_ref is None) != (a.selector is None),
        ),
    )


class Slowdown(Model):
    """How much slower, by which means, and when."""

    slowdown: float = Field(ge=1, le=MOST_SLOWDOWN, description="chi: matmul runs so many times slower.")
    mode: SlowdownMode | None = Field(None, description="Absent: sleep on cpu and emulated, spin on cuda.")
    pattern: Pattern = Pattern()
    start: Moment | None = None
    stop: Moment | None = None
    paused: bool = Field(False, description="Lifts it; its seconds and periods stand still.")

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "stop must be after start",
            "!has(self.start) || !has(self.stop) || "
            "!(has(self.start.iteration) && has(self.stop.iteration) && self.start.iteration >= self.stop.iteration)"
            " && !(has(self.start.seconds) && has(self.stop.seconds) && self.start.seconds >= self.stop.seconds)",
            _ordered,
            "stop",
        ),
    )


class StragglerInjectionSpec(Slowdown, InjectedRanks):  # fields of the last base come first
    """Makes ranks of a job slower: which ones, how much, by which means, and when."""

    rules: ClassVar[tuple[Rule, ...]] = (*InjectedRanks.rules, *Slowdown.rules)


class InjectedRank(Model):
    """One rank's slow-down: asked for by this injection, and measured (of all injections on the rank together)."""

    job: str = Field(max_length=253, description="Name of the job.")
    rank: int = Field(description="Rank of the job.")
    asked: float = Field(description="Slow-down that this injection asks for.")
    measured: float | None = Field(None, description="Slow-down measured, of all injections on the rank together.")
    since: str | None = Field(
        None, max_length=64, json_schema_extra={"format": "date-time"}, description="Since when it is slowed."
    )
    reason: str | None = Field(None, max_length=64, description="Why the effect is absent or differs, in one word.")
    message: str | None = Field(None, max_length=1024, description="The same, for people.")


class InjectionStatus(Model):
    """What a StragglerInjection reports."""

    observed_generation: int | None = Field(None, description="metadata.generation that this status is of.")
    phase: Literal["Pending", "Injecting", "Paused", "Finished", "Failed"] | None = Field(
        None, description="Of all jobs together: Injecting, if it acts in one of them."
    )
    ranks: list[InjectedRank] | None = Field(
        None,
        max_length=64,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="Ranks that it is meant for, those that are slowed now first.",
    )
    measured: float | None = Field(None, description="Median slow-down measured on the ranks that are slowed now.")
    message: str | None = Field(None, max_length=1024, description="What is wrong, and in which job.")
    conditions: list[Condition] | None = CONDITIONS


class StragglerInjection(Model):
    """Slows ranks on purpose."""

    api_version: Literal["heterotp.io/v1alpha1"]
    kind: Literal["StragglerInjection"]
    metadata: Metadata
    spec: StragglerInjectionSpec
    status: InjectionStatus | None = None
