"""Accuracy: the trainings to run, with ratios from the measured decisions."""

import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

from heterotp_cli.bench.emulation import RANKS, SHAPES, VIT_1B
from heterotp_cli.bench.scenarios import KINDS, SEVERAL, Shares, Size, Trial, trial_name

GAMMA_MAX = 0.9
WITH_3B = ("homogeneous", "fixed-skew")  # figures on accuracy that the paper has of ViT-3B, too
IMPUTATION_GAMMA = 0.5
NOTHING: Shares = (0.0,) * len(KINDS)
Ranks = tuple[tuple[Shares, ...], ...]  # [epoch][rank]
Results = Mapping[str, Mapping[str, Any]]


def eq1_ratio(chi: float) -> float:
    """Return gamma that brings a rank of slow-down chi to T_min: (chi - 1) / chi, clipped."""
    return min(GAMMA_MAX, (chi - 1) / chi)


def alike(ratio: float) -> Shares:
    """Return the same ratio of every kind of linear."""
    return (ratio,) * len(KINDS)


def in_turn(shares: Shares, epochs: int, ranks: int = RANKS) -> Ranks:
    """Return the shares for one rank, another one every epoch (the paper's round-robin)."""
    return tuple(
        tuple(shares if rank == epoch % ranks else NOTHING for rank in range(ranks)) for epoch in range(epochs)
    )


def always(shares: Sequence[Shares], epochs: int) -> Ranks:
    """Return the same shares of each rank in every epoch."""
    return (tuple(shares),) * epochs


def decided(found: Mapping[str, Any] | None, otherwise: float) -> Shares:
    """Return the shares that a timing gang's only straggler pruned; without a run, the ratio of eq. 1."""
    if found is None:
        return alike(otherwise)
    return max((tuple(shares) for shares in found["prunedShares"]), key=sum)


def trials(size: Size, figures: Sequence[str], times: Results) -> list[Trial]:
    """Return the trials of these figures; `times`: the decisions of the timing gangs, by step."""
    further = [*_dynamic(size, times), *_semi(size, times), *_several(size, times)]
    found: list[Trial] = []
    for model in [each.name for each in size.models if each.name in SHAPES]:
        every = [*_pruning(size), *(further if model == VIT_1B.name else [])]
        kinds = [t for t in every if {*t[3]} & {*figures} and (model == VIT_1B.name or {*t[3]} & {*WITH_3B})]
        baseline = ("baseline", {"selection": "Rd"}, always([NOTHING] * RANKS, size.epochs), ())
        kinds = [baseline, *kinds] if kinds else []
        found += [
            Trial(trial_name(model, name), seed, zero, shares, fig, model)
            for seed in range(size.seeds)
            for name, zero, shares, fig in kinds
        ]
    return found


Kind = tuple[str, dict[str, Any], Ranks, tuple[str, ...]]


def _pruning(size: Size) -> list[Kind]:
    kinds: list[Kind] = [
        (f"imputation {how}", {"imputation": how}, in_turn(alike(IMPUTATION_GAMMA), size.epochs), ("imputation",))
        for how in ("Same", "Zero", "Average")
    ]
    for gamma in size.gammas:
        on_all = always([alike(gamma)] * RANKS, size.epochs)
        kinds += [(f"homogeneous {s} {gamma}", {"selection": s}, on_all, ("homogeneous",)) for s in ("Rd", "Pri")]
        kinds.append((f"fixed skew {gamma}", {"selection": "Pri"}, in_turn(alike(gamma), size.epochs), ("fixed-skew",)))
        # the reference in that figure
        kinds[-2] = (*kinds[-2][:3], ("homogeneous", "fixed-skew"))
    return kinds


def _dynamic(size: Size, times: Results) -> list[Kind]:
    """Return the trial of ZERO with the shares that its decisions pruned."""
    kinds: list[Kind] = []
    for chi in size.chis if size.everything else size.chis[-1:]:
        otherwise = {"Pri": eq1_ratio(chi), "PriDiffE": 0.5, "PriDiffR": eq1_ratio(chi)}
        figures = {"PriDiffR": ("dynamic", "one-straggler")}
        for s, ratio in otherwise.items():
            shares = decided(times.get(f"time/vit-1b/ZERO-{s} chi {chi:g}"), ratio)
            turns = in_turn(shares, size.epochs)
            kinds.append((f"dynamic {s} {chi:g}", {"selection": s}, turns, figures.get(s, ("dynamic",))))
    return kinds


def _semi(size: Size, times: Results) -> list[Kind]:
    """Return the trial of SEMI with the shares that its decision pruned; migration changes no result."""
    kinds: list[Kind] = []
    for chi in size.chis:
        found = times.get(f"time/vit-1b/SEMI chi {chi:g}")
        if found is not None:
            turns, zero = in_turn(decided(found, 0.0), size.epochs), {"selection": "PriDiffR"}
            kinds.append((f"one straggler SEMI {chi:g}", zero, turns, ("one-straggler",)))
    return kinds


def _several(size: Size, times: Results) -> list[Kind]:
    kinds: list[Kind] = []
    for name in [*(f"lambda {split}" for split in range(len(SEVERAL) + 1)), "SEMI"]:
        found = times.get(f"time/vit-1b/several {name}")
        if found is not None:
            shares = always([tuple(each) for each in found["prunedShares"]], size.epochs)
            kinds.append((f"several {name}", {"selection": "PriDiffR"}, shares, ("several",)))
    return kinds


def run_trials(wanted: Sequence[Trial], keep: Callable[[Trial, dict[str, float]], None]) -> None:
    """Train all trials, one per core at a time, passing on each result at once."""
    from heterotp_cli.bench.training import run_trial

    workers = min(len(wanted), os.cpu_count() or 1)
    if not workers:
        return
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        pending = {
            pool.submit(run_trial, {"seed": t.seed, "zero": t.zero, "shares": t.shares, "model": t.model}): t
            for t in wanted
        }
        try:
            for done in as_completed(pending):
                keep(pending[done], done.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
