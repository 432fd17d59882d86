"""Accuracy: which trainings are run, with ratios that follow from the decisions."""

import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

from heterotp_cli.bench.emulation import RANKS
from heterotp_cli.bench.scenarios import SEVERAL, Size, Trial

GAMMA_MAX = 0.9
IMPUTATION_GAMMA = 0.5
Ratios = tuple[tuple[float, ...], ...]
Results = Mapping[str, Mapping[str, Any]]


def eq1_ratio(chi: float) -> float:
    """Return gamma that brings a rank of slow-down chi to T_min: (chi - 1) / chi, clipped."""
    return min(GAMMA_MAX, (chi - 1) / chi)


def in_turn(ratio: float, epochs: int) -> Ratios:
    """Return the ratio for one rank, another one every epoch (the paper's round-robin)."""
    return tuple(tuple(ratio if rank == epoch % RANKS else 0.0 for rank in range(RANKS)) for epoch in range(epochs))


def always(ratios: Sequence[float], epochs: int) -> Ratios:
    """Return the same ratios in every epoch."""
    return (tuple(ratios),) * epochs


def trials(size: Size, figures: Sequence[str], times: Results) -> list[Trial]:
    """Return the trials of these figures; `times`: what the timing gangs decided, by step."""
    every = [*_pruning(size), *_dynamic(size), *_semi(size, times), *_several(size, times)]
    kinds = [t for t in every if {*t[3]} & {*figures}]
    baseline = ("baseline", {"selection": "Rd"}, always([0.0] * RANKS, size.epochs), ())
    kinds = [baseline, *kinds] if kinds else []
    return [Trial(name, seed, zero, ratios, fig) for seed in range(size.seeds) for name, zero, ratios, fig in kinds]


Kind = tuple[str, dict[str, Any], Ratios, tuple[str, ...]]


def _pruning(size: Size) -> list[Kind]:
    kinds: list[Kind] = [
        (f"imputation {how}", {"imputation": how}, in_turn(IMPUTATION_GAMMA, size.epochs), ("imputation",))
        for how in ("Same", "Zero", "Average")
    ]
    for gamma in size.gammas:
        on_all = always([gamma] * RANKS, size.epochs)
        kinds += [(f"homogeneous {s} {gamma}", {"selection": s}, on_all, ("homogeneous",)) for s in ("Rd", "Pri")]
        kinds.append((f"fixed skew {gamma}", {"selection": "Pri"}, in_turn(gamma, size.epochs), ("fixed-skew",)))
        # what it is compared with in that figure
        kinds[-2] = (*kinds[-2][:3], ("homogeneous", "fixed-skew"))
    return kinds


def _dynamic(size: Size) -> list[Kind]:
    kinds: list[Kind] = []
    for chi in size.chis if size.everything else size.chis[-1:]:
        ratio = eq1_ratio(chi)
        given = {"Pri": ratio, "PriDiffE": 0.5, "PriDiffR": ratio}
        figures = {"PriDiffR": ("dynamic", "one-straggler")}
        kinds += [
            (f"dynamic {s} {chi:g}", {"selection": s}, in_turn(g, size.epochs), figures.get(s, ("dynamic",)))
            for s, g in given.items()
        ]
    return kinds


def _semi(size: Size, times: Results) -> list[Kind]:
    """Return SEMI with what its decision pruned; what it migrated changes nothing."""
    kinds: list[Kind] = []
    for chi in size.chis:
        decided = times.get(f"time/vit-1b/SEMI chi {chi:g}")
        if decided is not None:
            ratio = max(decided["prunedRatio"], default=0.0)
            zero = {"selection": "PriDiffR"}
            kinds.append((f"one straggler SEMI {chi:g}", zero, in_turn(ratio, size.epochs), ("one-straggler",)))
    return kinds


def _several(size: Size, times: Results) -> list[Kind]:
    kinds: list[Kind] = []
    for name in [*(f"lambda {split}" for split in range(len(SEVERAL) + 1)), "SEMI"]:
        decided = times.get(f"time/vit-1b/several {name}")
        if decided is not None:
            ratios = always(decided["prunedRatio"], size.epochs)
            kinds.append((f"several {name}", {"selection": "PriDiffR"}, ratios, ("several",)))
    return kinds


def run_trials(wanted: Sequence[Trial], keep: Callable[[Trial, dict[str, float]], None]) -> None:
    """Train all trials, as many at a time as there are cores, handing over each result as it comes."""
    from heterotp_cli.bench.training import run_trial

    workers = min(len(wanted), os.cpu_count() or 1)
    if not workers:
        return
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        pending = {pool.submit(run_trial, {"seed": t.seed, "zero": t.zero, "ratios": t.ratios}): t for t in wanted}
        try:
            for done in as_completed(pending):
                keep(pending[done], done.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
