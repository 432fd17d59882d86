"""The balancing strategies and the selections of pruned columns, each listed once with what other code asks of it."""

from dataclasses import dataclass
from typing import Literal

Strategy = Literal["None", "ZERO", "MIG", "SEMI", "RESHARD", "AUTO"]
Selection = Literal["Rd", "Pri", "PriDiffE", "PriDiffR"]
Primitive = Literal["broadcastReduce", "scatterGather"]  # how migrated work travels


@dataclass(frozen=True)
class StrategyTraits:
    """What a strategy may do; `blocks` are the blocks of a policy that belong to it."""

    blocks: tuple[str, ...] = ()
    prunes: bool = False  # it may delete work, at most maxPrunedShare of it
    pruned_share: float = 0.0  # its bound of deleted work where maxPrunedShare is absent, 0..1
    moves_units: bool = False


STRATEGIES: dict[Strategy, StrategyTraits] = {
    "None": StrategyTraits(),
    "ZERO": StrategyTraits(("zero",), prunes=True, pruned_share=1.0),
    "MIG": StrategyTraits(("mig",)),
    "SEMI": StrategyTraits(("semi",), prunes=True, pruned_share=1.0),
    "AUTO": StrategyTraits(("zero", "reshard"), prunes=True, moves_units=True),
    "RESHARD": StrategyTraits(("reshard",), prunes=True, moves_units=True),
}
PRUNING = tuple(name for name, traits in STRATEGIES.items() if traits.prunes)
LOSSLESS_BY_DEFAULT = tuple(name for name in PRUNING if not STRATEGIES[name].pruned_share)


def strategies_with(block: str) -> tuple[Strategy, ...]:
    """Return the strategies that a block of a policy belongs to, the strategy of the same name first."""
    found = [name for name, traits in STRATEGIES.items() if block in traits.blocks]
    return tuple(sorted(found, key=lambda name: name.lower() != block))


@dataclass(frozen=True)
class SelectionTraits:
    """How a selection chooses the columns to prune."""

    uses_importance: bool = True  # else columns are drawn at random
    per_layer: bool = False  # the pruning ratio differs from layer to layer
    fixed_ratio: float | None = None  # share of a straggler's columns, 0..1; None: as eq. 1 asks


SELECTIONS: dict[Selection, SelectionTraits] = {
    "Rd": SelectionTraits(uses_importance=False),
    "Pri": SelectionTraits(),
    "PriDiffE": SelectionTraits(per_layer=True, fixed_ratio=0.5),  # the paper's empirical ratio
    "PriDiffR": SelectionTraits(per_layer=True),
}
