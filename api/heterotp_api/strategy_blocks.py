"""The blocks of a balancing policy, one per strategy: ZERO, MIG, SEMI, RESHARD."""

from collections import Counter
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field
from pydantic.alias_generators import to_snake
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from heterotp_api.base import Model, Rule
from heterotp_api.presets import PRESET_FIELD
from heterotp_api.strategies import SELECTIONS, Primitive, Selection, SelectionTraits

SET_LIST: JsonDict = {"x-kubernetes-list-type": "set"}  # the API server refuses duplicates, no rule is needed


def unique(ranks: list[int]) -> list[int]:
    """Return the ranks; raises PydanticCustomError naming a duplicate."""
    twice = next((rank for rank, times in Counter(ranks).items() if times > 1), None)
    if twice is not None:
        raise PydanticCustomError("rule", "{message}", {"message": "is named twice", "value": twice})
    return ranks


Rank = Annotated[int, Field(ge=0, le=16383)]
Ranks = Annotated[list[Rank], Field(min_length=1, max_length=1024, json_schema_extra=SET_LIST), AfterValidator(unique)]
Imputation = Literal["Zero", "Average", "Same"]  # of the gradients of pruned columns


class Zero(Model):
    """ZERO-resizing: prune contraction columns of a straggler's linears."""

    selection: Selection = Field("Pri", description="Which columns are pruned.")
    criterion: Literal["minimum", "average"] = Field(
        "minimum",
        description="What time a straggler is brought to: minimum (default) or average of all ranks.",
        json_schema_extra=PRESET_FIELD,
    )
    times: Literal["fullWork", "measured"] = Field(
        "fullWork",
        description="Times that eq. 1 takes: fullWork (default), as if nothing were reduced, or measured, as executed.",
        json_schema_extra=PRESET_FIELD,
    )
    gamma_by: Literal["curve", "time"] = Field(
        "curve",
        description="Share of columns: curve (default), what saves the time on the measured curve, or time, eq. 1's.",
        json_schema_extra=PRESET_FIELD,
    )
    imputation: Imputation = Field("Zero", description="Gradients of pruned columns.")
    gamma_max: float = Field(0.9, ge=0, le=1, description="Most of a linear's columns to leave out.")
    alpha: float = Field(0.8, ge=0, le=1, description="PriDiff: a layer counts with at least this times gamma.")
    layer_ratios: Literal["scaled", "maximum"] = Field(
        "scaled",
        description="PriDiff: scaled (default) to the sum that eq. 1 asks for, or maximum: max(gamma_k, alpha gamma).",
        json_schema_extra=PRESET_FIELD,
    )
    theta_mode: Literal["quantile", "absolute"] = Field(
        "quantile",
        description="PriDiff: theta is a quantile of delta (default), or absolute: thetaPerIteration x iterations.",
        json_schema_extra=PRESET_FIELD,
    )
    redraw: Literal["iteration", "epoch"] = Field(
        "iteration",
        description="How often columns that are pruned at random are drawn anew: each iteration (default) or epoch.",
        json_schema_extra=PRESET_FIELD,
    )
    theta_quantile: float = Field(0.5, ge=0, le=1, description="PriDiff: theta is this quantile of delta.")
    theta_per_iteration: float = Field(0.001, ge=0, description="PriDiff: theta of one iteration, for absolute.")
    statistics_every: int | None = Field(
        None, ge=1, description="Iterations between measurements of importance; absent: once an epoch."
    )
    mask_pruned_update: bool = Field(False, description="The optimizer leaves pruned columns and their state alone.")
    paired_units: bool = Field(False, description="In feed-forward networks leave out whole hidden units.")
    grain: int | None = Field(None, ge=1, le=4096, description="Columns per block; absent: by device.")
    fixed_ratio: float | None = Field(None, ge=0, le=1, description="Prune so much of `ranks`, whatever their speed.")
    ranks: Ranks | None = Field(None, description="Ranks that fixedRatio is for.")

    @property
    def selection_traits(self) -> SelectionTraits:
        """How the selection chooses columns."""
        return SELECTIONS[self.selection]

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "maskPrunedUpdate goes with imputation Zero only: the mask throws an imputed gradient away",
            "!self.maskPrunedUpdate || self.imputation == 'Zero'",
            lambda z: not z.mask_pruned_update or z.imputation == "Zero",
            "maskPrunedUpdate",
        ),
        Rule(
            "pairedUnits goes with imputation Zero only: whole units that are left out have no gradient to guess",
            "!self.pairedUnits || self.imputation == 'Zero'",
            lambda z: not z.paired_units or z.imputation == "Zero",
            "pairedUnits",
        ),
    )


class Mig(Model):
    """MIG: migrate contraction columns every iteration."""

    primitive: Primitive = Field("broadcastReduce", description="How work travels.")
    target: Literal["commonTime", "minimum"] = Field(
        "commonTime",
        description="How much migrates: to the best commonTime of all ranks (default), or to the minimum by eq. 1.",
        json_schema_extra=PRESET_FIELD,
    )
    parts: Literal["bySpeed", "equal"] = Field(
        "bySpeed",
        description="What each receiver computes: bySpeed (default), in proportion to its speed, or equal parts.",
        json_schema_extra=PRESET_FIELD,
    )
    grain: int | None = Field(None, ge=1, le=4096, description="Columns per block; absent: by device.")
    fixed_ratio: float | None = Field(None, ge=0, le=1, description="Migrate so much of `ranks`, whatever their speed.")
    ranks: Ranks | None = Field(None, description="Ranks that fixedRatio is for.")


def _decided_by_semi(block: str, field: str) -> Rule:
    """A field that takes SEMI's decision from it is refused."""
    return Rule(
        f"{field} belongs to strategy {block.upper()}: SEMI decides ratios and ranks itself",
        f"!has(self.{block}.{field})",
        lambda s: getattr(getattr(s, block), to_snake(field)) is None,
        f"{block}.{field}",
    )


class Semi(Model):
    """SEMI: prune and migrate, by cost."""

    zero: Zero = Zero()
    mig: Mig = Mig()
    beta_rule: Literal["leastDeletion", "costBalance", "equation2"] = Field(
        "leastDeletion",
        description="What one straggler migrates: leastDeletion (default), costBalance, or equation2 as printed.",
        json_schema_extra=PRESET_FIELD,
    )
    split_rule: Literal["leastDeletion", "equation3"] = Field(
        "leastDeletion",
        description="Which of several migrate: leastDeletion (default), or equation3, up to the first x with f(x) < 0.",
        json_schema_extra=PRESET_FIELD,
    )
    time_tolerance: float = Field(0.05, ge=0, le=10, description="Share of time that may be spent to delete less.")
    migrating_stragglers: int | None = Field(
        None, ge=0, le=16383, description="So many of the slowest migrate, the others prune; absent: by cost."
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        *(_decided_by_semi(block, field) for block in ("zero", "mig") for field in ("fixedRatio", "ranks")),
        Rule(
            "pairedUnits belongs to strategy ZERO: pruned units and migrated columns would cut one matrix two ways",
            "!self.zero.pairedUnits",
            lambda s: not s.zero.paired_units,
            "zero.pairedUnits",
        ),
        Rule(
            "criterion average belongs to strategy ZERO: SEMI reduces work down to the minimum",
            "!has(self.zero.criterion) || self.zero.criterion == 'minimum'",
            lambda s: s.zero.criterion == "minimum",
            "zero.criterion",
        ),
    )


class Reshard(Model):
    """RESHARD: move ownership of units once."""

    grain: int | None = Field(
        None, ge=1, le=4096, description="Hidden units or vocabulary rows per block; absent: by device."
    )
    min_units: int | None = Field(None, ge=0, description="Hidden units that a rank keeps; absent: one block.")
    memory_limit_bytes: int | None = Field(
        None, ge=1, description="Most that a rank's weights and optimizer state may take; absent: no bound."
    )
    evict: Ranks | None = Field(None, description="Ranks that give up all units; absent: none.")
    return_to_even: bool = Field(True, description="Even shares again when a straggler recovers.")
