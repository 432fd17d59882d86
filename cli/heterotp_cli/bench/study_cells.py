"""The cells of the accuracy study: what is trained, at which size, with which shares; pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from heterotp_api.data_sets import ImageDataset
from heterotp_api.policy import BalancingSettings
from heterotp_api.training import ModelShape, Training

from heterotp_cli.bench.emulation import FFN_RATIO, RANKS, VIT_1B
from heterotp_cli.bench.scenarios import EVEN, KINDS, Shares, digest, one, several_chis
from heterotp_cli.bench.simulation import machine_of
from heterotp_cli.bench.trials import NOTHING, Ranks, alike, always, in_turn

GAMMAS = (0.25, 0.5, 0.9)
SELECTIONS = ("Rd", "Pri", "PriDiffR")
IMPUTATIONS = ("Zero", "Average", "Same")
CHI = 8.0
DECIDED_AFTER = 60  # simulated iterations, after which a decision stays
STRATEGIES: dict[str, dict[str, Any]] = {
    "ZERO-Rd": {"strategy": "ZERO", "zero": {"selection": "Rd"}},
    "ZERO-Pri": {"strategy": "ZERO", "zero": {"selection": "Pri"}},
    "ZERO-PriDiffE": {"strategy": "ZERO", "zero": {"selection": "PriDiffE"}},
    "ZERO-PriDiffR": {"strategy": "ZERO", "zero": {"selection": "PriDiffR"}},
    "SEMI": {"strategy": "SEMI", "semi": {"zero": {"selection": "PriDiffR"}}},
}
SWEET: dict[str, Any] = {  # of several: the paper's lambda, since by its own rule SEMI lets none migrate there
    "strategy": "SEMI",
    "semi": {"zero": {"selection": "PriDiffR"}, "migratingStragglers": 3},
}
GANGS: dict[str, dict[str, Any]] = {  # trained by real ranks: what moves work cannot be trained without them
    "MIG": {"strategy": "MIG"},
    "SEMI": STRATEGIES["SEMI"],
    "RESHARD": {"strategy": "RESHARD"},
    "AUTO": {"strategy": "AUTO"},
    "ZERO-Pri": STRATEGIES["ZERO-Pri"],  # also trained in one process: both ways must agree
}
COMPARED = "ZERO-Pri"


@dataclass(frozen=True)
class StudySize:
    """How large the study is: data, model, epochs and seeds."""

    name: str
    data: ImageDataset
    shape: ModelShape
    epochs: int
    seeds: int
    batch_size: int = 64
    learning_rate: float = 0.001
    warmup: int = 500
    train: int | None = None  # images; None: all
    test: int | None = None
    ranks: int = RANKS
    path: str | None = None  # of the data set
    gang_seconds: float = 0.5  # that products of an iteration take on an emulated rank of a gang

    @property
    def training(self) -> Training:
        """Learning rate, schedule and batches."""
        return Training(
            learning_rate=self.learning_rate,
            schedule="cosine",
            warmup_iterations=self.warmup,
            batch_size=self.batch_size,
        )

    @property
    def identity(self) -> list[Any]:
        """What decides a result beside the cell, JSON-ready; where the data set lies does not."""
        sizes = [self.shape.hidden_size, self.shape.depth, self.shape.heads, self.shape.patch_size]
        rest = [self.batch_size, self.learning_rate, self.warmup, self.train, self.test, self.ranks]
        return [self.data, *sizes, self.epochs, *rest]


def _vit(width: int, depth: int, patch: int = 4) -> ModelShape:
    return ModelShape(hidden_size=width, depth=depth, heads=RANKS, patch_size=patch, ffn_ratio=FFN_RATIO)


SIZES = {
    each.name: each
    for each in (
        StudySize("full", "shapes-32", _vit(192, 7), epochs=30, seeds=3),
        StudySize("small", "shapes-32", _vit(64, 4), epochs=12, seeds=3, learning_rate=0.002, train=20_000, test=4_000),
        StudySize(
            "digits", "digits", _vit(64, 2), epochs=12, seeds=3, learning_rate=0.003, warmup=20, gang_seconds=0.2
        ),
    )
}


@dataclass(frozen=True)
class StudyCell:
    """One training of the study; chis: of the ranks of a real gang, () where one process trains the shares given."""

    name: str
    seed: int
    policy: dict[str, Any]
    shares: Ranks = ()
    chis: tuple[float, ...] = ()
    group: str = field(default="", compare=False)

    @property
    def is_gang(self) -> bool:
        """Whether real ranks train it, with decisions in the loop."""
        return bool(self.chis)

    @property
    def file(self) -> str:
        """Name of its files, without ending."""
        return f"{self.name.replace(' ', '_').replace(',', '')}-{self.seed}"

    def content(self, size: StudySize) -> str:
        """Return a hash of all that decides its result."""
        return digest([size.identity, self.seed, self.policy, self.shares, self.chis])


def cells(size: StudySize) -> list[StudyCell]:
    """Return all cells, seed by seed within each group; first those that most claims need."""
    groups = (_homogeneous(size), _stragglers(size), _gangs(size), _imputed(size))
    return [replace(cell, seed=seed) for group in groups for seed in range(size.seeds) for cell in group]


def _pruning(name: str, block: dict[str, Any], shares: Ranks, group: str) -> StudyCell:
    return StudyCell(name, 0, {"strategy": "ZERO", "zero": block}, shares, group=group)


def _homogeneous(size: StudySize) -> list[StudyCell]:
    """Return the baseline, and every selection at every gamma with the default imputation."""
    found = [_pruning("baseline", {"selection": "Rd"}, always([NOTHING] * size.ranks, size.epochs), "baseline")]
    for gamma in GAMMAS:
        shares = always([alike(gamma)] * size.ranks, size.epochs)
        found += [_pruning(f"homogeneous {s} {gamma}", {"selection": s}, shares, "homogeneous") for s in SELECTIONS]
    return found


def _imputed(size: StudySize) -> list[StudyCell]:
    """Return the homogeneous cells with the other imputations."""
    return [
        _pruning(
            f"homogeneous {selection} {gamma} {imputation}",
            {"selection": selection, "imputation": imputation},
            always([alike(gamma)] * size.ranks, size.epochs),
            "imputation",
        )
        for gamma in GAMMAS
        for selection in SELECTIONS
        for imputation in IMPUTATIONS[1:]
    ]


def _stragglers(size: StudySize) -> list[StudyCell]:
    """Return one straggler that stays, one that wanders, and several, with the shares that the trainer decides."""
    found = []
    for name, policy in STRATEGIES.items():
        one_slow = decided_shares(policy, one(CHI, 0))
        several = decided_shares(SWEET if name == "SEMI" else policy, several_chis())
        block = policy.get("zero") or policy["semi"]["zero"]
        kinds: dict[str, Ranks] = {
            "one straggler": always(one_slow[: size.ranks], size.epochs),
            "round-robin": in_turn(one_slow[0], size.epochs, size.ranks),
            "several stragglers": always(several[: size.ranks], size.epochs),
        }
        found += [_pruning(f"{kind} {name}", block, shares, "stragglers") for kind, shares in kinds.items()]
    return found


def _gangs(size: StudySize) -> list[StudyCell]:
    chis = one(CHI, 0)[: size.ranks]
    return [StudyCell(f"gang {name}", 0, policy, chis=chis, group="gangs") for name, policy in GANGS.items()]


def decided_shares(policy: dict[str, Any], chis: Sequence[float]) -> tuple[Shares, ...]:
    """Return what each rank prunes of each kind of linear, as the trainer decides on the paper's machine."""
    from heterotp_trainer.balancing.simulation import Simulation

    machine = machine_of(VIT_1B)
    run = Simulation(machine, BalancingSettings.model_validate(policy))
    plan = run.run(chis, DECIDED_AFTER)[-1][1].plan
    return tuple(
        _pruned(machine.costs.classes, plan.reductions_by_rank.get(rank, ()), rank) for rank in range(len(EVEN))
    )


def _pruned(classes: Sequence[Any], reductions: Sequence[Any], rank: int) -> Shares:
    found = dict.fromkeys(KINDS, 0.0)
    for linears, taken in zip(classes, reductions, strict=False):
        found[linears.name.rpartition(".")[2]] = taken.pruned / linears.columns[rank]
    return tuple(found.values())
