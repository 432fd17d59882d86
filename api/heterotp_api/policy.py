"""BalancingPolicy: how ranks of unlike speed are balanced; every strategy has a block of its own."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from heterotp_api.base import Metadata, Model, Rule
from heterotp_api.conditions import CONDITIONS, Condition

Strategy = Literal["None", "ZERO", "MIG", "SEMI", "RESHARD", "AUTO"]
Rank = Annotated[int, Field(ge=0, le=16383)]
Ranks = Annotated[list[Rank], Field(min_length=1, max_length=1024)]
LabelValue = Annotated[str, StringConstraints(max_length=63)]


class LabelRequirement(Model):
    """One expression of a label selector, as in meta/v1."""

    key: str = Field(min_length=1, max_length=317)
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[LabelValue] | None = Field(None, max_length=64)


class LabelSelector(Model):
    """Selects jobs of the namespace by their labels; empty selects all."""

    match_labels: dict[str, LabelValue] | None = Field(None, max_length=64)
    match_expressions: list[LabelRequirement] | None = Field(None, max_length=32)


class Zero(Model):
    """ZERO-resizing: prune contraction columns of a straggler's linears (algorithms, section 2)."""

    selection: Literal["Rd", "Pri", "PriDiffE", "PriDiffR"] = "Pri"
    criterion: Literal["minimum", "average"] = "minimum"
    imputation: Literal["Zero", "Average", "Same"] = "Zero"
    gamma_max: float = Field(0.9, ge=0, le=1)
    alpha: float = Field(0.8, ge=0, le=1)
    theta_mode: Literal["quantile", "absolute"] = "quantile"
    theta_quantile: float = Field(0.5, ge=0, le=1)
    theta_per_iteration: float = Field(0.001, ge=0)
    statistics_every: int | None = Field(None, ge=1, description="Iterations; absent: once an epoch.")
    mask_pruned_update: bool = False
    paired_units: bool = False
    grain: int | None = Field(None, ge=1, le=4096, description="Columns per block; absent: by device.")
    fixed_ratio: float | None = Field(None, ge=0, le=1)
    ranks: Ranks | None = None


class Mig(Model):
    """MIG: migrate contraction columns every iteration (algorithms, section 3)."""

    primitive: Literal["broadcastReduce", "scatterGather"] = "broadcastReduce"
    grain: int | None = Field(None, ge=1, le=4096)
    fixed_ratio: float | None = Field(None, ge=0, le=1)
    ranks: Ranks | None = None


class Semi(Model):
    """SEMI: both, by cost (algorithms, section 4)."""

    zero: Zero = Zero()
    mig: Mig = Mig()
    beta_rule: Literal["leastDeletion", "costBalance"] = "leastDeletion"
    time_tolerance: float = Field(0.05, ge=0, le=10)
    migrating_stragglers: int | None = Field(None, ge=0, le=16383)


class Reshard(Model):
    """RESHARD: move ownership of units once (algorithms, section 5)."""

    grain: int | None = Field(None, ge=1, le=4096)
    min_units: int | None = Field(None, ge=0)
    memory_limit_bytes: int | None = Field(None, ge=1)
    evict: Ranks | None = Field(None, description="Ranks that give up all units; absent: none.")
    return_to_even: bool = True


def _block_rule(block: str, strategies: tuple[str, ...]) -> Rule:
    """A block of another strategy is refused."""
    listed = ", ".join(f"'{name}'" for name in strategies)
    return Rule(
        f"{block} belongs to strategy {' or '.join(strategies)}",
        f"!has(self.{block}) || self.strategy in [{listed}]",
        lambda p: getattr(p, block) is None or p.strategy in strategies,
        block,
    )


class BalancingSettings(Model):
    """A balancing policy without its selector, as written inline in a job."""

    strategy: Strategy = "AUTO"
    window: int = Field(5, ge=1, le=1000, description="Iterations of one median.")
    enter: float = Field(0.10, gt=0, le=100)
    exit: float = Field(0.05, ge=0, le=100)
    replan_threshold: float = Field(0.10, ge=0, le=100)
    max_pruned_share: float | None = Field(
        None, ge=0, le=1, description="Upper bound of deleted work; absent: 0 for AUTO and RESHARD, else 1."
    )
    replace_threshold: float = Field(2.0, ge=1, le=1000)
    replace_after_seconds: int = Field(600, ge=0)
    zero: Zero | None = None
    mig: Mig | None = None
    semi: Semi | None = None
    reshard: Reshard | None = None

    rules: ClassVar[tuple[Rule, ...]] = (
        _block_rule("zero", ("ZERO", "AUTO")),
        _block_rule("mig", ("MIG",)),
        _block_rule("semi", ("SEMI",)),
        _block_rule("reshard", ("RESHARD", "AUTO")),
        Rule("exit must be below enter", "self.exit < self.enter", lambda p: p.exit < p.enter, "exit"),
    )

    @property
    def pruned_share_limit(self) -> float:
        """Upper bound of the deleted share of work over all ranks, 0..1."""
        if self.max_pruned_share is not None:
            return self.max_pruned_share
        return 0.0 if self.strategy in ("AUTO", "RESHARD") else 1.0


class BalancingPolicySpec(BalancingSettings):
    """A balancing policy and the jobs that it selects."""

    selector: LabelSelector | None = None


class Laggard(Model):
    """A job that has not applied the published generation yet."""

    job: str = Field(max_length=253)
    published: int
    applied: int


class PolicyStatus(Model):
    """What a BalancingPolicy reports."""

    observed_generation: int | None = None
    selected_jobs: int | None = None
    applied_jobs: int | None = None
    laggards: list[Laggard] | None = Field(None, max_length=64, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    saved_seconds: float | None = None
    conditions: list[Condition] | None = CONDITIONS


class BalancingPolicy(Model):
    """Changes how running jobs balance."""

    api_version: Literal["heterotp.io/v1alpha1"]
    kind: Literal["BalancingPolicy"]
    metadata: Metadata
    spec: BalancingPolicySpec
    status: PolicyStatus | None = None
