"""What is measured: time on emulated devices, by steps in running gangs, and accuracy in trials of real training."""

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from heterotp_api.strategies import STRATEGIES, Strategy

from heterotp_cli.bench.emulation import RANKS, VIT_1B, VIT_3B, Machine, PaperModel

PAPER = ("imputation", "homogeneous", "fixed-skew", "dynamic", "table1", "one-straggler", "several")
FIGURES = (*PAPER, "periods", "real-cpu", "real-gpu")
EVEN = (1.0,) * RANKS
SEVERAL = (8.0, 6.0, 4.0, 2.0)  # chi of ranks 0..3 of the paper's last figure
PLACES = (2, 5)  # ranks that are the straggler in turn
EVICTED = 1e-3  # the least speed that can be declared: one hidden unit is left
REVISION = 3  # of the steps and trials; results of another revision are measured again
KINDS = ("qkv", "proj", "fc1", "fc2")  # the classes of linears; a rank prunes a share of each
CALIBRATION = (7, 9, 15)  # iterations of each round in which a gang finds its pace, before its first step
Shares = tuple[float, ...]
PLANS = "plans.json"  # of a timing gang's run directory: what each plan prunes of each kind


def digest(content: Any) -> str:
    """Return 16 hex digits of JSON-ready content and of how it is measured."""
    text = json.dumps([REVISION, content], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Step:
    """One setting of a running gang: a policy and chi per rank, held until the times are steady."""

    name: str
    policy: dict[str, Any]
    chis: tuple[float, ...] = EVEN
    figures: tuple[str, ...] = ()
    turn: int = 0  # iterations after which the slow-down goes to the next rank; 0: it stays where it is
    places: int = 1  # ranks that it visits, from rank 0 on

    @property
    def decides(self) -> bool:
        """Whether the step waits for a decision; else the policy itself sets what is pruned or migrated."""
        fixed = any("fixedRatio" in block for block in self.policy.values() if isinstance(block, dict))
        return self.policy["strategy"] != "None" and not fixed and max(self.chis) > 1


@dataclass(frozen=True)
class GangRun:
    """A gang of one model with given shares, and its steps in order."""

    name: str
    model: Machine
    speeds: tuple[float, ...]
    steps: tuple[Step, ...]

    def content(self, step: Step, size: "Size") -> str:
        """Return a hash that is equal for two steps if and only if they measure the same, whatever their names."""
        sizes = [*self.model.sizes(size.pace), size.samples]
        return digest([sizes, self.speeds, step.policy, step.chis, step.turn, step.places])

    def without(self, names: Collection[str]) -> "GangRun":
        """Return the run without steps that are measured already."""
        return replace(self, steps=tuple(step for step in self.steps if step.name not in names))


@dataclass(frozen=True)
class Trial:
    """One real training: per epoch, rank and kind the share pruned, by a selection; with `seed` as its pair."""

    name: str
    seed: int
    zero: dict[str, Any]
    shares: tuple[tuple[Shares, ...], ...]  # [epoch][rank]
    figures: tuple[str, ...] = field(default=(), compare=False)
    model: str = VIT_1B.name  # whose proportions the trained stand-in has

    @property
    def content(self) -> str:
        """A hash that is equal for two trials if and only if they train the same, whatever their names."""
        return digest([self.seed, self.zero, self.shares, self.model])


@dataclass(frozen=True)
class Size:
    """How much is measured: quick fits into 5 minutes on 2 cores, full into 60."""

    chis: tuple[float, ...]
    gammas: tuple[float, ...]
    shares: tuple[float, ...]  # of Table I
    seeds: int
    epochs: int
    models: tuple[PaperModel, ...]
    samples: int  # iterations of a median
    splits: tuple[int, ...]  # lambda of several stragglers
    pace: float  # emulated seconds per second of the paper's machine
    everything: bool
    repeats: int = 1  # gang runs of a step
    policies: tuple[tuple[str, dict[str, Any]], ...] = ()  # by name, given by the user: further rows
    turn: int = 12  # iterations after which a straggler that wanders moves on
    places: int = 2  # ranks that it visits


QUICK = Size((2.0, 8.0), (0.5, 0.9), (0.5,), 5, 5, (VIT_1B,), 5, (0, 3), 0.6, False)
FULL = Size(
    chis=(2.0, 4.0, 6.0, 8.0),
    gammas=(0.25, 0.5, 0.9),
    shares=(0.25, 0.5, 0.75, 1.0),
    seeds=6,
    epochs=12,
    models=(VIT_1B, VIT_3B),
    samples=17,
    splits=(0, 1, 2, 3, 4),
    pace=1.0,
    everything=True,
    repeats=3,
    turn=40,
    places=3,
)
BASELINE: dict[str, Any] = {"strategy": "None"}
OURS = tuple(
    name for name in get_args(Strategy) if STRATEGIES[name].moves_units
)  # move ownership: a gang that they have acted on has other shares


# the paper's equations: eq. 1 with T_min, without which 3.5x is out of reach, and everything else of the preset
PRINTED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "ZERO-Pri": (
        {"strategy": "ZERO", "preset": "paper", "zero": {"criterion": "minimum", "selection": "Pri"}},
        ("dynamic",),
    ),
    "ZERO-PriDiffR": (
        {"strategy": "ZERO", "preset": "paper", "zero": {"criterion": "minimum", "selection": "PriDiffR"}},
        ("dynamic",),
    ),
    "ZERO-Pri, average": ({"strategy": "ZERO", "preset": "paper", "zero": {"selection": "Pri"}}, ("dynamic",)),
    "MIG": ({"strategy": "MIG", "preset": "paper"}, ("one-straggler",)),
    "SEMI": ({"strategy": "SEMI", "preset": "paper", "semi": {"zero": {"selection": "PriDiffR"}}}, ("one-straggler",)),
}
PRINTED_NAMES = [f"{name} as printed" for name in PRINTED]
# in --quick
AT_EVERY_CHI = ("Baseline", "ZERO-Pri", "ZERO-Pri as printed", "ZERO-PriDiffR as printed")
WANDERING = ("Baseline", "ZERO-Pri")
WANDERING_ALL = (*WANDERING, "ZERO-PriDiffR")  # in the full size


def _wandering(size: Size) -> list[Step]:
    """Return runs in which another rank is slow every few iterations, and one rank in turn prunes."""
    policies = {"Baseline": BASELINE, "ZERO-Pri": zero("Pri"), "ZERO-PriDiffR": zero("PriDiffR")}
    chi = max(size.chis)
    return [
        Step(f"{name} in turn", policies[name], one(chi, 0), ("dynamic",), size.turn, size.places)
        for name in (policies if size.everything else WANDERING)
    ]


def trial_name(model: str, name: str) -> str:
    """Return the name of a training; those of the first model are plain."""
    return name if model == VIT_1B.name else f"{model} {name}"


def one(chi: float, place: int) -> tuple[float, ...]:
    """Return chi for one rank, 1 for the others."""
    return tuple(chi if rank == place else 1.0 for rank in range(RANKS))


def zero(selection: str) -> dict[str, Any]:
    """Return a ZERO policy of a selection."""
    return {"strategy": "ZERO", "zero": {"selection": selection}}


def gang_runs(size: Size, figures: Sequence[str]) -> list[GangRun]:
    """Return the gangs to run for these figures."""
    runs = [GangRun(model.name, model, EVEN, tuple(_steps(size, model))) for model in size.models]
    runs += _static(size)
    return needed(runs, figures)


def needed(runs: Sequence[GangRun], figures: Sequence[str]) -> list[GangRun]:
    """Return the gangs with those steps that the figures need."""
    kept = [r.without({s.name for s in r.steps if not {*s.figures} & {*figures}}) for r in runs]
    return [run for run in kept if run.steps]


def _steps(size: Size, model: PaperModel) -> list[Step]:
    every = (*PAPER, "periods")
    steps = [Step("baseline", BASELINE, EVEN, every), *_homogeneous(size)]
    if model is VIT_1B:
        steps += [*_dynamic(size), *table_steps(size), *_wandering(size), *_several(size)]
    return steps


def _homogeneous(size: Size) -> list[Step]:
    ranks = list(range(RANKS))
    return [
        Step(f"homogeneous {name} {gamma}", {"strategy": "ZERO", "zero": block}, EVEN, ("homogeneous",))
        for gamma in size.gammas
        for name in ("Rd", "Pri")
        if size.everything or name == "Pri" or gamma == size.gammas[-1]
        for block in [{"selection": name, "fixedRatio": gamma, "ranks": ranks}]
    ]


def _dynamic(size: Size) -> list[Step]:
    """Return every strategy at every chi; another rank is the straggler in every step."""
    strategies = {
        "Baseline": (BASELINE, ("dynamic", "one-straggler", "periods")),
        "ZERO-Pri": (zero("Pri"), ("dynamic", "periods")),
        "ZERO-PriDiffE": (zero("PriDiffE"), ("dynamic",)),
        "ZERO-PriDiffR": (zero("PriDiffR"), ("dynamic", "one-straggler")),
        "MIG": ({"strategy": "MIG"}, ("one-straggler", "periods")),
        "SEMI": ({"strategy": "SEMI", "semi": {"zero": {"selection": "PriDiffR"}}}, ("one-straggler", "periods")),
    }
    strategies |= {f"{name} as printed": (policy, figures) for name, (policy, figures) in PRINTED.items()}
    own = dict(size.policies)
    strategies |= {name: (policy, ("dynamic", "one-straggler")) for name, policy in own.items()}
    wanted = [
        (name, chi)
        for name in strategies
        for chi in size.chis
        if size.everything or (chi == max(size.chis) and name not in PRINTED_NAMES) or name in (*AT_EVERY_CHI, *own)
    ]
    return [
        Step(f"{name} chi {chi:g}", strategies[name][0], one(chi, PLACES[number % 2]), strategies[name][1])
        for number, (name, chi) in enumerate(wanted)
    ]


def table_steps(size: Size, ranks: int = RANKS) -> list[Step]:
    """Return the steps of Table I."""
    return [
        Step(
            f"{primitive} {count} {gamma}",
            {"strategy": "MIG", "mig": {"primitive": primitive, "fixedRatio": gamma, "ranks": list(range(count))}},
            (1.0,) * ranks,
            ("table1",),
        )
        for count in (1, 4)
        for primitive in ("broadcastReduce", "scatterGather")
        for gamma in size.shares
    ]


def several_chis() -> tuple[float, ...]:
    """Return chi of all ranks in the paper's last figure."""
    return (*SEVERAL, *(1.0,) * (RANKS - len(SEVERAL)))


def _several(size: Size) -> list[Step]:
    chis = several_chis()
    semi = {"selection": "PriDiffR"}
    steps = [Step("several Baseline", BASELINE, chis, ("several",))]
    for split in (*size.splits, None):
        block: dict[str, Any] = {"zero": semi} | ({} if split is None else {"migratingStragglers": split})
        name = "several SEMI" if split is None else f"several lambda {split}"
        steps.append(Step(name, {"strategy": "SEMI", "semi": block}, chis, ("several",)))
    return steps


def _static(size: Size) -> list[GangRun]:
    """Return the runs that need their own gang: with other shares from the start (oracle, evict), or moving shares."""
    worst = max(size.chis)
    cases = {"one": (one(worst, PLACES[0]), ("one-straggler", "dynamic")), "several": (several_chis(), ("several",))}
    runs: list[GangRun] = []
    for case, (chis, figures) in cases.items() if size.everything else ():
        oracle = tuple(1 / chi for chi in chis)
        evicted = tuple(EVICTED if chi > 1 else 1.0 for chi in chis)
        held = {"oracle": (oracle, BASELINE), "evict": (evicted, BASELINE)}
        held |= {name: (EVEN, {"strategy": name}) for name in OURS}
        for name, (speeds, policy) in held.items():
            step = Step(f"{name} {case}", policy, chis, figures)
            runs.append(GangRun(f"{name}-{case}", VIT_1B, speeds, (step,)))
    return runs
