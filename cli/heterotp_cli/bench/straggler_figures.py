"""The paper's figures on stragglers that do not change place: one of them, and several."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from operator import attrgetter
from typing import Any

from heterotp_cli.bench.accuracy_figures import (
    AGAINST,
    EMULATED,
    LOSSLESS,
    TRAINED,
    against_baseline,
    no_slower,
)
from heterotp_cli.bench.emulation import EPOCH_ITERATIONS
from heterotp_cli.bench.figure import Cell, Chart, Claim, Figure, Series, judged, missing, together, verdict
from heterotp_cli.bench.scenarios import Size, one, several_chis
from heterotp_cli.bench.statistics import Results, Span, epoch_ratio, paired, ratio, steady
from heterotp_cli.bench.time_figures import BASELINES, LIMIT, SECONDS, baselines, limit_seconds, over_chi, seconds

ONE = ("Baseline", "MIG", "ZERO-PriDiffR", "SEMI")
PRINTED_ONE = ("MIG as printed", "SEMI as printed")
TOLERANCE = 0.05  # SEMI's timeTolerance
KEPT = 0.8  # share of the time that pruning alone saves which counts as nearly all
SAME = 0.01  # of all work: a smaller difference counts as equal
SWEET = 3  # the paper's lambda


def one_straggler(results: Results, size: Size) -> Figure:
    """One straggler: SEMI between ZERO and MIG."""
    worst = max(size.chis)
    every = (*ONE, *PRINTED_ONE, *(name for name, _ in size.policies))
    rows = [_one_row(results, name, chi) for name in every for chi in size.chis]
    rows += [[name, worst, least, 0.0, *LOSSLESS] for name, least in baselines(results, "one", one(worst, 0))]
    claims = [_mig_between(results, worst), _semi_as_fast(results, worst), _semi_deletes_less(results, worst)]
    columns = ("strategy", "chi", SECONDS, "pruned by the straggler (emulated)", *AGAINST)
    chart = Chart("One straggler", "chi", SECONDS, over_chi(results, size, ONE))
    how = f"time: {EMULATED}; accuracy: {TRAINED}; SEMI's trainings prune what its decision pruned"
    source = "Fig. 'Scalability with a single straggler'"
    return Figure("one-straggler", "One straggler", source, how, columns, rows, (chart,), claims, (BASELINES,))


def _one_row(results: Results, name: str, chi: float) -> list[Cell]:
    step = f"{name} chi {chi:g}"
    found = results.get(f"time/vit-1b/{step}")
    pruned = max(found["prunedRatio"], default=0.0) if found else None
    trial = {"SEMI": f"one straggler SEMI {chi:g}", "ZERO-PriDiffR": f"dynamic PriDiffR {chi:g}"}.get(name)
    lossless = not pruned and found is not None
    changes = against_baseline(results, trial) if trial else LOSSLESS if lossless else ("-", "-")
    return [name, chi, seconds(results, step), pruned, *changes]


def _mig_between(results: Results, chi: float) -> Claim:
    text, paper = f"MIG helps at chi {chi:g}, but stays far from ideal", "between Baseline and ZERO"
    mig, zero, base = (f"{name} chi {chi:g}" for name in ("MIG", "ZERO-PriDiffR", "Baseline"))
    over, under = epoch_ratio(results, mig, zero), epoch_ratio(results, mig, base)
    if over is None or under is None:
        return missing(text, paper)
    result, why = together(
        {
            "MIG takes longer than ZERO": verdict(over.low > 1, over.high < 1),
            "MIG takes less than Baseline": verdict(under.high < 1, under.low > 1),
        }
    )
    measured = f"{over.emulated('{:.2f}', ' times ZERO')}, {under.emulated('{:.2f}', ' times Baseline')}"
    return Claim(text, paper, measured, result, why)


def _semi_as_fast(results: Results, chi: float) -> Claim:
    text, paper = f"SEMI is as fast as ZERO at chi {chi:g}", "as fast"
    times = epoch_ratio(results, f"SEMI chi {chi:g}", f"ZERO-PriDiffR chi {chi:g}")
    return no_slower(text, paper, times, TOLERANCE, f"within its timeTolerance of {TOLERANCE:.0%}")


def _semi_deletes_less(results: Results, chi: float) -> Claim:
    text, paper = f"SEMI loses far less than ZERO at chi {chi:g}", "far less accuracy lost"
    found = paired(results, f"one straggler SEMI {chi:g}", f"dynamic PriDiffR {chi:g}", "accuracy")
    semi, zero = (results.get(f"time/vit-1b/{name} chi {chi:g}") for name in ("SEMI", "ZERO-PriDiffR"))
    if found is None or semi is None or zero is None:
        return missing(text, paper)
    pruned = [max(each["prunedRatio"], default=0.0) for each in (semi, zero)]
    measured = f"{found.points()}; prunes {pruned[0]:.0%} where ZERO prunes {pruned[1]:.0%}"
    why = "accuracy by paired seeds; how much migrates depends on the price of the link"
    return Claim(text, paper, measured, verdict(found.above, found.below), why)


@dataclass(frozen=True)
class UnitPlan:
    """The result of a plan for several stragglers."""

    seconds: Span  # per epoch
    deleted: float  # share of all work
    migrating: int  # ranks


def _plan(found: Mapping[str, Any]) -> UnitPlan:
    pruned = found["prunedRatio"]
    migrating = sum(each > 0 for each in found["migratedRatio"])
    return UnitPlan(steady(found).mapped(lambda each: each * EPOCH_ITERATIONS), sum(pruned) / len(pruned), migrating)


def several(results: Results, size: Size) -> Figure:
    """Four stragglers of eight; the first lambda of them migrate."""
    names = ["Baseline", *(f"lambda {x}" for x in size.splits), "SEMI"]
    plans = {name: _plan(found) for name in names if (found := results.get(f"time/vit-1b/several {name}"))}
    rows: list[list[Cell]] = []
    for name in names:
        plan, changes = plans.get(name), against_baseline(results, f"several {name}")
        numbers = (plan.seconds.value, plan.deleted) if plan else (None, None)
        rows.append([name, *numbers, *(LOSSLESS if name == "Baseline" else changes)])
    rows += [[name, least, 0.0, *LOSSLESS] for name, least in baselines(results, "several", several_chis())]
    splits = {x: plan for x in size.splits if (plan := plans.get(f"lambda {x}"))}
    claims = [_sweet_spot(splits, plans.get("Baseline")), _own_rule(splits, plans.get("SEMI"))]
    columns = ("plan", SECONDS, "deleted of all work (emulated)", *AGAINST)
    how = f"time: emulated devices, steady state x {EPOCH_ITERATIONS}; accuracy: {TRAINED}"
    title, source = "Stragglers of chi 8, 6, 4 and 2", "Fig. on lambda (several stragglers)"
    chart = _several_chart(splits, size)
    return Figure("several", title, source, how, columns, rows, (chart,), claims, (BASELINES,))


def _several_chart(splits: Mapping[int, UnitPlan], size: Size) -> Chart:
    limit = limit_seconds(several_chis())
    ends = [min(size.splits, default=0), max(size.splits, default=0)]
    lines = [
        Series("SEMI with lambda given", list(splits), [plan.seconds.value for plan in splits.values()]),
        Series(LIMIT, ends, [limit, limit], True),
    ]
    return Chart("Four of eight", "stragglers that migrate (lambda)", SECONDS, lines)


def _sweet_spot(splits: Mapping[int, UnitPlan], base: UnitPlan | None) -> Claim:
    text, paper = f"the sweet spot is at lambda {SWEET}", "lambda 3: nearly ZERO's time at a small loss"
    if base is None or not {0, SWEET - 1, SWEET, SWEET + 1} <= splits.keys():
        return missing(text, paper)
    before, sweet, after = (splits[SWEET + step] for step in (-1, 0, 1))
    kept, kept_after = (_kept(base.seconds, each.seconds, splits[0].seconds) for each in (sweet, after))
    if kept is None or kept_after is None:
        return Claim(text, paper, "-", "undecided", "lambda 0 saves no time against Baseline that is beyond the noise")
    result, why = together(
        {
            f"lambda {SWEET} keeps {KEPT:.0%} of the time that lambda 0 saves": judged(kept, least=KEPT),
            f"lambda {SWEET + 1} keeps less": verdict(kept_after.high < KEPT, kept_after.low >= KEPT),
            f"lambda {SWEET} deletes less than lambda {SWEET - 1}": verdict(
                sweet.deleted < before.deleted, sweet.deleted >= before.deleted
            ),
        }
    )
    measured = (
        f"of the time that lambda 0 saves, lambda {SWEET} keeps {kept.emulated('{:.0%}')}, lambda {SWEET + 1} "
        f"{kept_after.emulated('{:.0%}')}; lambda {SWEET - 1} deletes {before.deleted:.1%} of all work, lambda {SWEET} "
        f"{sweet.deleted:.1%}"
    )
    return Claim(text, paper, measured, result, why)


def _kept(base: Span, mine: Span, fast: Span) -> Span | None:
    """Return a plan's saving as a share of the saving of `fast`, None where `fast` may save nothing."""
    if base.low <= fast.high:
        return None
    ends = ((each.low, each.high) for each in (base, mine, fast))
    corners = [(b - m) / (b - f) for b, m, f in product(*ends)]  # monotone in each of the three
    return Span((base.value - mine.value) / (base.value - fast.value), min(corners), max(corners))


def _own_rule(splits: Mapping[int, UnitPlan], semi: UnitPlan | None) -> Claim:
    text, paper = "SEMI finds the lambda that is best by its own rule", "eq. 3 finds lambda 3"
    if semi is None or len(splits) < 2:
        return missing(text, paper)
    fastest = min(splits.values(), key=lambda plan: plan.seconds.value)
    # noise may let a lambda in or keep it out: `possible` is the best if it let in all it could, `sure` if none
    best, possible, sure = (_best(splits, fastest, attrgetter(end)) for end in ("value", "low", "high"))
    least, most = (splits[x].deleted + SAME for x in (possible, sure))
    times = ratio(semi.seconds, fastest.seconds)
    result, why = together(
        {
            f"it deletes no more than lambda {best}": verdict(semi.deleted <= least, semi.deleted > most),
            f"it is within {TOLERANCE:.0%} of the fastest lambda": judged(times, most=1 + TOLERANCE),
        }
    )
    measured = (
        f"of lambda {', '.join(map(str, splits))} the best is {best}, which deletes {splits[best].deleted:.1%} of all "
        f"work; SEMI lets {semi.migrating} ranks migrate and deletes {semi.deleted:.1%}, in "
        f"{times.emulated('{:.2f}')} of the fastest's time"
    )
    return Claim(text, paper, measured, result, why)


def _best(splits: Mapping[int, UnitPlan], fastest: UnitPlan, end: Callable[[Span], float]) -> int:
    """Return the lambda that SEMI's rule takes: within timeTolerance of the fastest, the one that deletes least."""
    near = [
        x for x, plan in splits.items() if plan is fastest or end(ratio(plan.seconds, fastest.seconds)) <= 1 + TOLERANCE
    ]
    return min(near, key=lambda x: (splits[x].deleted, splits[x].seconds.value))
