"""The paper's figures on stragglers that change place, Table I without any, and how long one must last (ours)."""

from collections.abc import Sequence

from heterotp_cli.bench import cpu_figures
from heterotp_cli.bench.accuracy_figures import AGAINST, EMULATED, LOSSLESS, TRAINED, against_baseline
from heterotp_cli.bench.emulation import EPOCH_ITERATIONS, VIT_1B, fluid_limit
from heterotp_cli.bench.figure import Cell, Chart, Claim, Figure, Series, constructed, judged, missing, verdict
from heterotp_cli.bench.scenarios import BASELINE, EVEN, OURS, WANDERING, WANDERING_ALL, Size, one, zero
from heterotp_cli.bench.simulation import PERIODS, mean_seconds
from heterotp_cli.bench.statistics import (
    Results,
    composed_turn,
    epoch,
    epoch_ratio,
    largest,
    paired,
    steady_of,
)

FLAT = 0.10  # an increase of time up to this counts as none
ROUNDED = 0.05  # of a speed-up that the paper gives with one digit after the point
BEYOND = 0.02  # how far above the ideal a result may lie and still be plausible
SECONDS = "seconds per epoch (emulated)"
LIMIT = "fluid limit (computed)"
BASELINES = (
    "oracle: shares by the true speeds from the start; evict: all but one hidden unit taken from the straggler; "
    "RESHARD and AUTO: ours, units moved while the gang runs (none of the four is part of --quick)"
)
TABLE = {  # the paper's Table I, seconds per epoch
    ("broadcastReduce", 1): {0.0: 373, 0.25: 425, 0.5: 451, 0.75: 473, 1.0: 500},
    ("scatterGather", 1): {0.0: 373, 0.25: 478, 0.5: 627, 0.75: 796, 1.0: 963},
    ("broadcastReduce", 4): {0.0: 373, 0.25: 737, 0.5: 846, 0.75: 998, 1.0: 1113},
    ("scatterGather", 4): {0.0: 373, 0.25: 779, 0.5: 971, 0.75: 1198, 1.0: 1436},
}
DYNAMIC = ("Baseline", "ZERO-Pri", "ZERO-PriDiffE", "ZERO-PriDiffR")
PRINTED = ("ZERO-Pri as printed", "ZERO-Pri, average as printed", "ZERO-PriDiffR as printed")
COMPOSED = 0.05  # how far a composed time may lie from a run


def seconds(results: Results, step: str) -> float | None:
    """Return seconds of a composed epoch of a step of the 1B gang, None where it was not measured."""
    found = epoch(results, step)
    return None if found is None else found.value


def limit_seconds(chis: tuple[float, ...]) -> float:
    """Return the lower bound of every lossless method, seconds of an epoch."""
    return EPOCH_ITERATIONS * fluid_limit(VIT_1B, chis)


def baselines(results: Results, case: str, chis: tuple[float, ...]) -> list[tuple[str, float | None]]:
    """Return the references for lossless methods, seconds per epoch: static shares, RESHARD and AUTO, the limit."""
    found = {name: steady_of(results, f"time/{name}-{case}/{name} {case}") for name in ("oracle", "evict", *OURS)}
    static = [(name, EPOCH_ITERATIONS * each.value if each else None) for name, each in found.items()]
    return [*static, (LIMIT, limit_seconds(chis))]


def over_chi(results: Results, size: Size, names: Sequence[str]) -> list[Series]:
    """Return each strategy's time over chi, from the homogeneous one on, and the fluid limit."""
    lines = []
    for name in names:
        points = [(1.0, seconds(results, "baseline"))]
        points += [(chi, seconds(results, f"{name} chi {chi:g}")) for chi in size.chis]
        known = [(chi, value) for chi, value in points if value is not None]
        lines.append(Series(name, [x for x, _ in known], [y for _, y in known]))
    chis = [1.0, *size.chis]
    return [*lines, Series(LIMIT, chis, [limit_seconds(one(chi, 0)) for chi in chis], True)]


def dynamic(results: Results, size: Size) -> Figure:
    """Another rank is the straggler in every epoch."""
    worst = max(size.chis)
    claims = [_linear(results, size), cpu_figures.linear(results, size), _flat(results, size)]
    claims += [_faster(results, "ZERO-Pri", worst, 3.5), cpu_figures.faster(results, "ZERO-Pri", size, 3.5)]
    claims += [_faster(results, "ZERO-PriDiffE", worst, 2.1), _pridiff_saves(results, min(size.chis))]
    claims += [_composed(results, name, worst, size) for name in WANDERING]
    claims += [_small_loss(results, "Pri", worst, 0.013), _small_loss(results, "PriDiffE", worst, 0.003)]
    columns = ("strategy", "chi", SECONDS, "times faster than Baseline (emulated)", *AGAINST)
    lines = over_chi(results, size, DYNAMIC)
    chart = Chart("A straggler that wanders", "chi", SECONDS, lines)
    notes = (
        "PriDiffE leaves half of the columns: at a matmul share of 0.37 it cannot be more than 1.7 times faster",
        f"{BASELINES}. Fixed shares are cut for one place of the straggler and cannot follow it: shown as if they did",
    )
    how = f"time: {EMULATED}; accuracy: {TRAINED}"
    source = "Fig. 'Overall performance in heterogeneous environments'"
    rows = _dynamic_rows(results, size, worst)
    return Figure("dynamic", "Dynamic stragglers", source, how, columns, rows, (chart,), claims, notes)


def _dynamic_rows(results: Results, size: Size, worst: float) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for name in (*DYNAMIC, *PRINTED, *(name for name, _ in size.policies)):
        for chi in size.chis:
            step, trial = f"{name} chi {chi:g}", f"dynamic {name.removeprefix('ZERO-')} {chi:g}"
            faster = epoch_ratio(results, f"Baseline chi {chi:g}", step)
            changes = LOSSLESS if name == "Baseline" else against_baseline(results, trial)
            rows.append([name, chi, seconds(results, step), None if faster is None else faster.value, *changes])
    base = seconds(results, f"Baseline chi {worst:g}")
    for name in WANDERING_ALL:
        ran = steady_of(results, f"time/vit-1b/{name} in turn")
        if ran is not None:
            rows.append([f"{name}, really in turn", worst, EPOCH_ITERATIONS * ran.value, None, "-", "-"])
    for name, least in baselines(results, "one", one(worst, 0)):
        rows.append([name, worst, least, base / least if base and least else None, *LOSSLESS])
    return rows


def _linear(results: Results, size: Size) -> Claim:
    text, paper = "the Baseline's time grows linearly with chi", "linear; 0.63 + 0.37 chi of the homogeneous time"
    start = seconds(results, "baseline")
    points = [(chi, seconds(results, f"Baseline chi {chi:g}")) for chi in size.chis]
    known = [(chi, value) for chi, value in points if value is not None]
    if start is None or not known:
        return missing(text, paper)
    chi, value = known[-1]
    slope = (value / start - 1) / (chi - 1)
    off = max(abs(s / start - 1 - slope * (c - 1)) for c, s in known)
    measured = f"slope {slope:.2f} of the homogeneous time per chi, off the line by at most {off:.2f} (emulated)"
    return constructed(text, paper, measured, "products take chi times as long, and their share was put in")


def _pridiff_saves(results: Results, chi: float) -> Claim:
    text, paper = f"PriDiffR takes up to 4 % less time than Pri at chi {chi:g}, as printed", "up to 4 % less"
    times = epoch_ratio(results, f"ZERO-PriDiffR as printed chi {chi:g}", f"ZERO-Pri as printed chi {chi:g}")
    if times is None:
        return missing(text, paper)
    less = times.mapped(lambda each: 1 - each)
    why = "layers prune max(gamma_k, alpha gamma), four layers; holds where all of the interval is above zero"
    return Claim(text, paper, less.emulated("{:.1%}", " less"), verdict(less.low > 0, less.high < 0), why)


def _composed(results: Results, name: str, chi: float, size: Size) -> Claim:
    """Compare a run in which the straggler really wanders with what is composed of the steps."""
    text = f"{name}: composed epochs are what a wandering straggler takes"
    paper = f"ours: within {COMPOSED:.0%}, moving on every {size.turn} iterations"
    ran, step = steady_of(results, f"time/vit-1b/{name} in turn"), results.get(f"time/vit-1b/{name} chi {chi:g}")
    if ran is None or step is None:
        return missing(text, paper)
    composed = composed_turn(step, size.turn)
    off = ran.mapped(lambda seconds: seconds / composed - 1)
    why = f"{size.places} ranks in turn, each slow for {size.turn} iterations, really run"
    return Claim(text, paper, off.emulated("{:+.1%}", " of the composed time"), judged(off, -COMPOSED, COMPOSED), why)


def _flat(results: Results, size: Size) -> Claim:
    text, paper = "ZERO-Pri's time stays flat", "steady"
    found = [epoch_ratio(results, f"ZERO-Pri chi {chi:g}", "baseline") for chi in size.chis]
    known = [times for times in found if times is not None]
    if not known:
        return missing(text, paper)
    most = largest(known).mapped(lambda times: times - 1)
    why = f"against chi = 1; up to {FLAT:.0%} counts as flat; a transition per epoch is part of it"
    return Claim(text, paper, "at most " + most.emulated("{:+.1%}"), judged(most, most=FLAT), why)


def _faster(results: Results, name: str, chi: float, claimed: float) -> Claim:
    text, paper = f"{name} at chi {chi:g} against Baseline", f"{claimed} times faster"
    faster = epoch_ratio(results, f"Baseline chi {chi:g}", f"{name} chi {chi:g}")
    if faster is None:
        return missing(text, paper)
    ideal = 1 - VIT_1B.matmul_share + VIT_1B.matmul_share * chi
    least = claimed - ROUNDED
    why = (
        f"from {least:.2f} on, which the paper's digits round up; the whole straggling removed would be {ideal:.2f} "
        f"times at a matmul share of {VIT_1B.matmul_share}"
    )
    measured = faster.emulated("{:.2f}", " times faster")
    if faster.low > (1 + BEYOND) * ideal:
        return Claim(text, paper, measured, "undecided", f"a result beyond the ideal is not credible: {why}")
    return Claim(text, paper, measured, judged(faster, least=least), why)


def _small_loss(results: Results, selection: str, chi: float, claimed: float) -> Claim:
    text, paper = f"ZERO-{selection} at chi {chi:g} loses little accuracy", f"{claimed:.1%} loss"
    found = paired(results, f"dynamic {selection} {chi:g}", "baseline", "accuracy")
    if found is None:
        return missing(text, paper)
    why = "holds when the whole interval is above the paper's loss"
    return Claim(text, paper, found.points(), judged(found, least=-claimed), why)


def table1(results: Results, size: Size) -> Figure:
    """Migration by two primitives, from one or four ranks, without stragglers."""
    rows: list[list[Cell]] = []
    lines: list[Series] = []
    gammas = [0.0, *size.shares]
    for (primitive, count), paper in TABLE.items():
        steps = ["baseline", *(f"{primitive} {count} {gamma}" for gamma in size.shares)]
        name, times = f"{primitive} ({count})", [seconds(results, step) for step in steps]
        rows += [[name, g, s, float(paper[g])] for g, s in zip(gammas, times, strict=True)]
        known = [(g, s) for g, s in zip(gammas, times, strict=True) if s is not None]
        lines += [Series(name, [g for g, _ in known], [s for _, s in known])]
        lines += [Series(f"{name}, paper", list(paper), [float(s) for s in paper.values()], True)]
    limit = limit_seconds(EVEN)
    rows.append([LIMIT, None, limit, None])
    lines.append(Series(LIMIT, [0.0, 1.0], [limit, limit], True))
    claims = [claim for count in (1, 4) for gamma in size.shares for claim in _orders(results, count, gamma)]
    chart = Chart("Migration", "share of columns that migrate", SECONDS, lines)
    columns = ("primitive (senders)", "gamma", SECONDS, "seconds per epoch (the paper's)")
    how = f"{EMULATED}; links as PCIe 3 at 10.5 GB/s, 20 us a step"
    notes = ("without stragglers the fluid limit is the baseline, and oracle and evict have nothing to do",)
    return Figure("table1", "Migration primitives", "Table I", how, columns, rows, (chart,), claims, notes)


def _order(results: Results, count: int, gamma: float) -> Claim:
    text = f"broadcast-reduce beats scatter-gather, {count} sender{'s' if count > 1 else ''}, gamma {gamma:g}"
    tree, pairs = (TABLE[primitive, count][gamma] for primitive in ("broadcastReduce", "scatterGather"))
    paper = f"{tree} < {pairs} s"
    steps = [f"{primitive} {count} {gamma}" for primitive in ("broadcastReduce", "scatterGather")]
    mine, other = (seconds(results, step) for step in steps)
    times = epoch_ratio(results, *steps)
    if times is None:
        return missing(text, paper)
    measured = f"{mine:.0f} against {other:.0f} s, {times.emulated('{:.2f}', ' times')}"
    return constructed(text, paper, measured, "the emulated link takes what a formula says of both primitives")


def _orders(results: Results, count: int, gamma: float) -> tuple[Claim, Claim]:
    """Return the claim on the emulated link, and the one on real transfers."""
    return _order(results, count, gamma), cpu_figures.order(results, count, gamma)


def periods(results: Results, size: Size) -> Figure:
    """How long a straggler must last for a strategy to pay (not in the paper, simulated)."""
    policies = {"Baseline": BASELINE, "ZERO-Pri": zero("Pri")}
    policies |= {name: {"strategy": name} for name in ("MIG", "SEMI", *OURS)}
    chi = max(size.chis)
    found = {name: [mean_seconds(VIT_1B, policy, chi, p) for p in PERIODS] for name, policy in policies.items()}
    rows: list[list[Cell]] = [[name, *each] for name, each in found.items()]
    chart = Chart(
        f"A straggler of chi {chi:g} that moves on",
        "iterations until it moves on",
        "seconds per iteration (simulated)",
        [Series(name, list(PERIODS), each) for name, each in found.items()],
        True,
    )
    columns = ("strategy", *(f"seconds per iteration, moving on every {p} (simulated)" for p in PERIODS))
    how = "simulated: the trainer's own decision on computed times, nothing was run"
    return Figure("periods", "How long stragglers stay", "ours, not in the paper", how, columns, rows, (chart,), ())
