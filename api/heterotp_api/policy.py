"""BalancingPolicy: how ranks of unlike speed are balanced; every strategy has a block of its own."""

from collections.abc import Iterable
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints, model_validator

from heterotp_api.base import MOST_SECONDS, Metadata, Model, Rule
from heterotp_api.conditions import CONDITIONS, Condition
from heterotp_api.presets import PRESETS, Preset, with_preset
from heterotp_api.strategies import (
    LOSSLESS_BY_DEFAULT,
    PRUNING,
    SELECTIONS,
    STRATEGIES,
    Selection,
    Strategy,
    strategies_with,
)
from heterotp_api.strategy_blocks import Mig, Reshard, Semi, Zero

# balancing.policy of a job's status where no BalancingPolicy governs the job
INLINE_POLICY, DEFAULT_POLICY = "inline", "default"
FIXED_RATIOS = [name for name, traits in SELECTIONS.items() if traits.fixed_ratio is not None]


LabelValue = Annotated[str, StringConstraints(max_length=63)]


class LabelRequirement(Model):
    """One expression of a label selector, as in meta/v1."""

    key: str = Field(min_length=1, max_length=317, description="Key of a label.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(description="How key and values relate.")
    values: list[LabelValue] | None = Field(None, max_length=64, description="For In and NotIn.")


class LabelSelector(Model):
    """Selects jobs of the namespace by their labels; empty selects all."""

    match_labels: dict[str, LabelValue] | None = Field(None, max_length=64, description="Labels that a job must have.")
    match_expressions: list[LabelRequirement] | None = Field(None, max_length=32, description="All of them must hold.")


def _block_rule(block: str) -> Rule:
    """A block of another strategy is refused."""
    strategies = strategies_with(block)
    listed = ", ".join(f"'{name}'" for name in strategies)
    return Rule(
        f"{block} belongs to strategy {' or '.join(strategies)}",
        f"!has(self.{block}) || self.strategy in [{listed}]",
        lambda p: getattr(p, block) is None or p.strategy in strategies,
        block,
    )


def _fixed_ratio_rules(block: str, verb: str, ranks_to: str) -> tuple[Rule, ...]:
    """A fixed ratio and the ranks that it is for belong together (asked here, as SEMI's blocks take neither)."""
    ratio, ranks = f"{block}.fixedRatio", f"{block}.ranks"
    return (
        Rule(
            f"fixedRatio needs ranks, the ranks to {ranks_to}",
            f"!has(self.{block}) || !has(self.{ratio}) || has(self.{ranks})",
            lambda p: (given := getattr(p, block)) is None or given.fixed_ratio is None or given.ranks is not None,
            ratio,
        ),
        Rule(
            f"ranks needs fixedRatio, the share of columns to {verb}",
            f"!has(self.{block}) || !has(self.{ranks}) || has(self.{ratio})",
            lambda p: (given := getattr(p, block)) is None or given.ranks is None or given.fixed_ratio is not None,
            ranks,
        ),
    )


def _has_ratio(zero: Zero | None) -> bool:
    return zero is not None and zero.fixed_ratio is not None


def _unbounded(zero: Zero | None) -> bool:
    return zero is not None and zero.selection_traits.per_layer and zero.layer_ratios == "maximum"


def _unbounded_rule(path: str) -> Rule:
    """PriDiff as printed may prune more than was decided: a bound of the pruned share could not be kept."""
    outer, _, inner = path.rpartition(".")
    has = f"has(self.{outer}) && has(self.{path})" if outer else f"has(self.{path})"
    per_layer = [name for name, traits in SELECTIONS.items() if traits.per_layer]
    return Rule(
        "layerRatios maximum prunes as much as the layers' importance asks for: leave out maxPrunedShare, or take "
        "layerRatios scaled",
        f"!has(self.maxPrunedShare) || !({has} && has(self.{path}.layerRatios)) || "
        f"self.{path}.layerRatios != 'maximum' || !(self.{path}.selection in {per_layer})",
        lambda p: (
            p.max_pruned_share is None or not _unbounded(getattr(getattr(p, outer), inner, None) if outer else p.zero)
        ),
        "maxPrunedShare",
    )


def _selection_rule(selection: Selection) -> Rule:
    """A fixed ratio is refused beside a selection that has one of its own."""
    ratio = Fraction(SELECTIONS[selection].fixed_ratio or 0.0)
    return Rule(
        f"selection {selection} fixes the ratio to {ratio}: leave out fixedRatio, or take PriDiffR",
        f"!has(self.zero) || !has(self.zero.fixedRatio) || self.zero.selection != '{selection}'",
        lambda p: not _has_ratio(p.zero) or p.zero.selection != selection,
        "zero.fixedRatio",
    )


class BalancingSettings(Model):
    """A balancing policy without its selector, as written inline in a job."""

    strategy: Strategy = Field("AUTO", description="What is done about stragglers.")
    preset: Preset | None = Field(
        None, description="paper: the equations as printed; fields that are given win. Absent: ours."
    )
    window: int = Field(5, ge=1, le=1000, description="Iterations of one median.")
    enter: float = Field(0.10, gt=0, le=100, description="Slower by more than this in two windows: a straggler.")
    exit: float = Field(0.05, ge=0, le=100, description="A straggler stays one until it is less than this slower.")
    replan_threshold: float = Field(
        0.10, ge=0, le=100, description="A straggler's time that moves by more than this makes a new plan."
    )
    max_pruned_share: float | None = Field(
        None,
        ge=0,
        le=1,
        description=f"Upper bound of deleted work; absent: 0 for {' and '.join(LOSSLESS_BY_DEFAULT)}, else 1.",
    )
    replace_threshold: float = Field(2.0, ge=1, le=1000, description="chi from which a rank should be replaced.")
    replace_after_seconds: int = Field(600, ge=0, le=MOST_SECONDS, description="How long it must have been so slow.")
    zero: Zero | None = None
    mig: Mig | None = None
    semi: Semi | None = None
    reshard: Reshard | None = None

    rules: ClassVar[tuple[Rule, ...]] = (
        *(_block_rule(block) for block in ("zero", "mig", "semi", "reshard")),
        Rule(
            f"preset paper belongs to strategies {', '.join(PRESETS['paper'])}: the paper has no other",
            f"!has(self.preset) || self.strategy in {list(PRESETS['paper'])}",
            lambda p: p.preset is None or p.strategy in PRESETS[p.preset],
            "preset",
        ),
        _unbounded_rule("zero"),
        _unbounded_rule("semi.zero"),
        Rule("exit must be below enter", "self.exit < self.enter", lambda p: p.exit < p.enter, "exit"),
        Rule(
            f"maxPrunedShare belongs to strategies {', '.join(PRUNING)}: the others delete nothing",
            f"!has(self.maxPrunedShare) || self.strategy in {list(PRUNING)}",
            lambda p: p.max_pruned_share is None or p.strategy in PRUNING,
            "maxPrunedShare",
        ),
        *_fixed_ratio_rules("zero", "prune", "prune"),
        *_fixed_ratio_rules("mig", "migrate", "migrate from"),
        Rule(
            "fixedRatio must not be above gammaMax",
            "!has(self.zero) || !has(self.zero.fixedRatio) || self.zero.fixedRatio <= self.zero.gammaMax",
            lambda p: not _has_ratio(p.zero) or p.zero.fixed_ratio <= p.zero.gamma_max,
            "zero.fixedRatio",
        ),
        *map(_selection_rule, FIXED_RATIOS),
        Rule(
            "fixedRatio belongs to strategy ZERO",
            "!has(self.zero) || !has(self.zero.fixedRatio) || self.strategy == 'ZERO'",
            lambda p: not _has_ratio(p.zero) or p.strategy == "ZERO",
            "zero.fixedRatio",
        ),
        Rule(
            "fixedRatio sets the pruned share itself: leave out maxPrunedShare",
            "!has(self.zero) || !has(self.zero.fixedRatio) || !has(self.maxPrunedShare)",
            lambda p: not _has_ratio(p.zero) or p.max_pruned_share is None,
            "maxPrunedShare",
        ),
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: Any) -> Any:
        return with_preset(given)

    @property
    def pruned_share_limit(self) -> float:
        """Upper bound of the deleted share of work over all ranks, 0..1."""
        if self.max_pruned_share is not None:
            return self.max_pruned_share
        return STRATEGIES[self.strategy].pruned_share

    @property
    def moves_units(self) -> bool:
        """Whether the strategy may move the ownership of units."""
        return STRATEGIES[self.strategy].moves_units

    @property
    def fixed(self) -> Zero | Mig | None:
        """The block that fixes a ratio and ranks itself; None: what is taken follows from measured times."""
        blocks = (block for block in (self.zero, self.mig) if block is not None and block.fixed_ratio is not None)
        return next(blocks, None)

    @property
    def named_ranks(self) -> dict[str, list[int] | None]:
        """The fields that name ranks, and the ranks that they name; None: the field is absent."""
        zero, mig, reshard = self.zero, self.mig, self.reshard
        return {
            "zero.ranks": zero.ranks if zero else None,
            "mig.ranks": mig.ranks if mig else None,
            "reshard.evict": reshard.evict if reshard else None,
        }

    @property
    def prunes(self) -> bool:
        """Whether columns may be left out of an iteration."""
        return STRATEGIES[self.strategy].prunes and self.pruned_share_limit > 0

    @property
    def pruning(self) -> Zero:
        """How columns are pruned, whatever the strategy."""
        return self.semi.zero if self.semi is not None else self.zero or Zero()

    @property
    def needs_importance(self) -> bool:
        """Whether columns may be pruned, and are selected by their importance."""
        return self.prunes and self.pruning.selection_traits.uses_importance


class BalancingPolicySpec(BalancingSettings):
    """A balancing policy and the jobs that it selects."""

    selector: LabelSelector | None = None

    @cached_property
    def settings(self) -> BalancingSettings:
        """The policy without its selector, as a control document carries it."""
        return BalancingSettings(**{name: getattr(self, name) for name in BalancingSettings.model_fields})


def beyond(ranks: Iterable[int], count: int) -> str | None:
    """Return `value: what would be right` for the first rank that a job of `count` ranks does not have."""
    return next((f"{rank}: the job has ranks 0 .. {count - 1}" for rank in ranks if rank >= count), None)


def policy_problem(settings: BalancingSettings, count: int) -> str | None:
    """Return what a job of `count` ranks cannot do, as `field: value: what would be right` below the settings."""
    for field, ranks in settings.named_ranks.items():
        if (wrong := beyond(ranks or (), count)) is not None:
            return f"{field}: {wrong}"
        if ranks and count == 1:
            return f"{field}: a job of a single rank balances nothing: take two ranks or more"
        if field != "zero.ranks" and len(ranks or ()) == count:
            return f"{field}: all {count} ranks: leave one that takes their work"
    return None


class Laggard(Model):
    """A job that has not applied the published generation yet."""

    job: str = Field(max_length=253, description="Name of the job.")
    published: int = Field(description="Generation of its control document with this policy; 0: none yet.")
    applied: int = Field(description="Generation that its ranks follow.")


class PolicyStatus(Model):
    """What a BalancingPolicy reports."""

    observed_generation: int | None = Field(None, description="metadata.generation that this status is of.")
    selected_jobs: int | None = Field(None, description="Jobs that it governs and that have not ended.")
    applied_jobs: int | None = Field(None, description="Those whose ranks all follow this version of it.")
    laggards: list[Laggard] | None = Field(
        None,
        max_length=64,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="Running jobs that do not follow yet.",
    )
    saved_seconds: float | None = Field(None, description="What balancing saved in the runs of the jobs it governs.")
    conditions: list[Condition] | None = CONDITIONS


class BalancingPolicy(Model):
    """Changes how running jobs balance."""

    api_version: Literal["heterotp.io/v1alpha1"]
    kind: Literal["BalancingPolicy"]
    metadata: Metadata
    spec: BalancingPolicySpec
    status: PolicyStatus | None = None
