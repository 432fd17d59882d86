"""The paper's figures on time: dynamic stragglers, Table I, one straggler, several, and how long they last."""

from collections.abc import Sequence

from heterotp_cli.bench.accuracy_figures import TRAINED, loss_points
from heterotp_cli.bench.emulation import EPOCH_ITERATIONS, VIT_1B, fluid_limit
from heterotp_cli.bench.figure import Cell, Chart, Claim, Figure, Series, missing, verdict
from heterotp_cli.bench.scenarios import BASELINE, Size, one, several_chis, zero
from heterotp_cli.bench.simulation import PERIODS, mean_seconds
from heterotp_cli.bench.statistics import Results, composed_epoch, paired

EMULATED = "emulated devices; epochs of 782 iterations composed from the measured transition and steady state"
FLAT, SEMI_TOLERANCE, NOISE = 0.10, 0.05, 0.03
TABLE = {  # the paper's Table I, seconds per epoch
    ("broadcastReduce", 1): {0.0: 373, 0.25: 425, 0.5: 451, 0.75: 473, 1.0: 500},
    ("scatterGather", 1): {0.0: 373, 0.25: 478, 0.5: 627, 0.75: 796, 1.0: 963},
    ("broadcastReduce", 4): {0.0: 373, 0.25: 737, 0.5: 846, 0.75: 998, 1.0: 1113},
    ("scatterGather", 4): {0.0: 373, 0.25: 779, 0.5: 971, 0.75: 1198, 1.0: 1436},
}
DYNAMIC = ("Baseline", "ZERO-Pri", "ZERO-PriDiffE", "ZERO-PriDiffR")
ONE = ("Baseline", "MIG", "ZERO-PriDiffR", "SEMI")


def epoch(results: Results, step: str) -> float | None:
    """Return seconds of a composed epoch of a step of the 1B gang, None where it was not measured."""
    found = results.get(f"time/vit-1b/{step}")
    return None if found is None else composed_epoch(found)


def _over_chi(results: Results, size: Size, names: Sequence[str]) -> list[Series]:
    start = epoch(results, "baseline")
    lines = []
    for name in names:
        known = [(chi, epoch(results, f"{name} chi {chi:g}")) for chi in size.chis]
        points = [(chi, seconds) for chi, seconds in known if seconds is not None]
        points = [(1.0, start), *points] if start is not None else points
        lines.append(Series(name, [x for x, _ in points], [y for _, y in points]))
    chis = [1.0, *size.chis]
    limit = [EPOCH_ITERATIONS * fluid_limit(VIT_1B, one(chi, 0)) for chi in chis]
    return [*lines, Series("fluid limit (computed)", chis, limit, True)]


def _speedup(results: Results, name: str, chi: float) -> float | None:
    mine, base = epoch(results, f"{name} chi {chi:g}"), epoch(results, f"Baseline chi {chi:g}")
    return None if mine is None or base is None else base / mine


def dynamic(results: Results, size: Size) -> Figure:
    """A straggler that wanders from epoch to epoch."""
    rows: list[list[Cell]] = []
    for name in DYNAMIC:
        for chi in size.chis:
            seconds, faster = epoch(results, f"{name} chi {chi:g}"), _speedup(results, name, chi)
            short = name.removeprefix("ZERO-")
            points = "-" if name == "Baseline" else loss_points(results, f"dynamic {short} {chi:g}")
            rows.append([name, chi, seconds, faster, points])
    worst = max(size.chis)
    claims = [_linear(results, size), _flat(results, size)]
    claims += [_faster(results, "ZERO-Pri", worst, 3.5), _faster(results, "ZERO-PriDiffE", worst, 2.1)]
    claims += [_small_loss(results, "Pri", worst, 0.013), _small_loss(results, "PriDiffE", worst, 0.003)]
    columns = ("strategy", "chi", "seconds per epoch", "times faster than Baseline", "accuracy against the baseline")
    chart = Chart("A straggler that wanders", "chi", "seconds per epoch", _over_chi(results, size, DYNAMIC))
    notes = ("PriDiffE leaves half of the columns: at a matmul share of 0.37 it cannot be more than 1.7 times faster",)
    how = f"time: {EMULATED}; accuracy: {TRAINED}"
    source = "Fig. 'Overall performance in heterogeneous environments'"
    return Figure("dynamic", "Dynamic stragglers", source, how, columns, rows, (chart,), claims, notes)


def _linear(results: Results, size: Size) -> Claim:
    text, paper = "the Baseline's time grows linearly with chi", "linear; 0.63 + 0.37 chi of the homogeneous time"
    start = epoch(results, "baseline")
    points = [(chi, epoch(results, f"Baseline chi {chi:g}")) for chi in size.chis]
    known = [(chi, seconds) for chi, seconds in points if seconds is not None]
    if start is None or not known:
        return missing(text, paper)
    chi, seconds = known[-1]
    slope = (seconds / start - 1) / (chi - 1)
    off = max(abs(s / start - 1 - slope * (c - 1)) for c, s in known)
    measured = f"slope {slope:.2f} of the homogeneous time per chi, off the line by at most {off:.2f}"
    good = off <= FLAT and abs(slope - VIT_1B.matmul_share) <= FLAT * VIT_1B.matmul_share * 2
    return Claim(text, paper, measured, verdict(good, not good), "line through chi 1 and the largest chi")


def _flat(results: Results, size: Size) -> Claim:
    text, paper = "ZERO-Pri's time stays flat", "steady"
    start = epoch(results, "baseline")
    seconds = [s for chi in size.chis if (s := epoch(results, f"ZERO-Pri chi {chi:g}")) is not None]
    if start is None or not seconds:
        return missing(text, paper)
    most = max(seconds) / start - 1
    why = f"against chi = 1; up to {FLAT:.0%} counts as flat; a transition per epoch is part of it"
    return Claim(text, paper, f"at most {most:+.1%}", verdict(most <= FLAT, most > FLAT), why)


def _faster(results: Results, name: str, chi: float, claimed: float) -> Claim:
    text, paper = f"{name} at chi {chi:g} against Baseline", f"{claimed} times faster"
    faster = _speedup(results, name, chi)
    if faster is None:
        return missing(text, paper)
    ideal = (1 - VIT_1B.matmul_share + VIT_1B.matmul_share * chi) / 1.0
    why = f"the whole straggling removed would be {ideal:.2f} times at a matmul share of {VIT_1B.matmul_share}"
    good = faster >= claimed - NOISE * claimed
    return Claim(text, paper, f"{faster:.2f} times faster (emulated)", verdict(good, not good), why)


def _small_loss(results: Results, selection: str, chi: float, claimed: float) -> Claim:
    text, paper = f"ZERO-{selection} at chi {chi:g} loses little accuracy", f"{claimed:.1%} loss"
    found = paired(results, f"dynamic {selection} {chi:g}", "baseline", "accuracy")
    if found is None:
        return missing(text, paper)
    holds, fails = found.low >= -claimed, found.high < -claimed
    return Claim(
        text, paper, found.points(), verdict(holds, fails), "holds when the whole interval is above the paper's loss"
    )


def table1(results: Results, size: Size) -> Figure:
    """Migration by two primitives, from one or four ranks, without stragglers."""
    rows, claims, lines = [], [], []
    base = epoch(results, "baseline")
    for (primitive, count), paper in TABLE.items():
        seconds = [base, *(epoch(results, f"{primitive} {count} {gamma}") for gamma in size.shares)]
        gammas = [0.0, *size.shares]
        name = f"{primitive} ({count})"
        rows += [[name, g, s, float(paper[g])] for g, s in zip(gammas, seconds, strict=True)]
        known = [(g, s) for g, s in zip(gammas, seconds, strict=True) if s is not None]
        lines += [Series(name, [g for g, _ in known], [s for _, s in known])]
        lines += [Series(f"{name}, paper", list(paper), [float(s) for s in paper.values()], True)]
    claims = [_order(results, count, gamma) for count in (1, 4) for gamma in size.shares]
    chart = Chart("Migration", "share of columns that migrate", "seconds per epoch", lines)
    columns = ("primitive (senders)", "gamma", "seconds per epoch", "the paper's")
    how = f"{EMULATED}; links as PCIe 3 at 10.5 GB/s, 20 us a step"
    return Figure("table1", "Migration primitives", "Table I", how, columns, rows, (chart,), claims)


def _order(results: Results, count: int, gamma: float) -> Claim:
    text = f"broadcast-reduce beats scatter-gather, {count} sender{'s' if count > 1 else ''}, gamma {gamma:g}"
    tree, pairs = (TABLE[primitive, count][gamma] for primitive in ("broadcastReduce", "scatterGather"))
    paper = f"{tree} < {pairs} s"
    mine, other = (epoch(results, f"{primitive} {count} {gamma}") for primitive in ("broadcastReduce", "scatterGather"))
    if mine is None or other is None:
        return missing(text, paper)
    clear = abs(mine - other) > NOISE * mine
    result = verdict(clear and mine < other, clear and mine > other)
    return Claim(
        text, paper, f"{mine:.0f} against {other:.0f} s (emulated)", result, f"a gap below {NOISE:.0%} is undecided"
    )


def one_straggler(results: Results, size: Size) -> Figure:
    """One straggler: SEMI between ZERO and MIG."""
    rows = []
    for name in ONE:
        for chi in size.chis:
            found = results.get(f"time/vit-1b/{name} chi {chi:g}")
            pruned = max(found["prunedRatio"], default=0.0) if found else None
            points = {"SEMI": f"one straggler SEMI {chi:g}", "ZERO-PriDiffR": f"dynamic PriDiffR {chi:g}"}.get(name)
            shown = "lossless" if points is None else loss_points(results, points)
            rows.append([name, chi, epoch(results, f"{name} chi {chi:g}"), pruned, shown])
    worst = max(size.chis)
    for case in ("oracle", "evict"):
        found = results.get(f"time/{case}-one/{case} one")
        rows.append([case, worst, None if found is None else found["steady"] * EPOCH_ITERATIONS, 0.0, "lossless"])
    rows.append(
        ["fluid limit (computed)", worst, EPOCH_ITERATIONS * fluid_limit(VIT_1B, one(worst, 0)), 0.0, "lossless"]
    )
    claims = [_mig_between(results, worst), _semi_as_fast(results, worst), _semi_deletes_less(results, worst)]
    columns = ("strategy", "chi", "seconds per epoch", "pruned by the straggler", "accuracy against the baseline")
    chart = Chart("One straggler", "chi", "seconds per epoch", _over_chi(results, size, ONE))
    how = f"time: {EMULATED}; accuracy: {TRAINED}; SEMI's trainings prune what its decision pruned"
    source = "Fig. 'Scalability with a single straggler'"
    notes = (
        "oracle: shares by the true speeds from the start; evict: all but one hidden unit taken from the straggler",
    )
    return Figure("one-straggler", "One straggler", source, how, columns, rows, (chart,), claims, notes)


def _mig_between(results: Results, chi: float) -> Claim:
    text, paper = f"MIG helps at chi {chi:g}, but stays far from ideal", "between Baseline and ZERO"
    mig, zero_, base = (epoch(results, f"{name} chi {chi:g}") for name in ("MIG", "ZERO-PriDiffR", "Baseline"))
    if mig is None or zero_ is None or base is None:
        return missing(text, paper)
    holds = (1 + NOISE) * zero_ < mig < (1 - NOISE) * base
    measured = f"ZERO {zero_:.0f} s, MIG {mig:.0f} s, Baseline {base:.0f} s (emulated)"
    return Claim(text, paper, measured, verdict(holds, not holds), "seconds per epoch")


def _semi_as_fast(results: Results, chi: float) -> Claim:
    text, paper = f"SEMI is as fast as ZERO at chi {chi:g}", "as fast"
    semi, zero_ = (epoch(results, f"{name} chi {chi:g}") for name in ("SEMI", "ZERO-PriDiffR"))
    if semi is None or zero_ is None:
        return missing(text, paper)
    more = semi / zero_ - 1
    why = f"within its timeTolerance of {SEMI_TOLERANCE:.0%}, and {NOISE:.0%} of noise"
    holds = more <= SEMI_TOLERANCE + NOISE
    return Claim(text, paper, f"{more:+.1%} (emulated)", verdict(holds, not holds), why)


def _semi_deletes_less(results: Results, chi: float) -> Claim:
    text, paper = f"SEMI loses far less than ZERO at chi {chi:g}", "far less accuracy lost"
    found = paired(results, f"one straggler SEMI {chi:g}", f"dynamic PriDiffR {chi:g}", "accuracy")
    semi, zero_ = (results.get(f"time/vit-1b/{name} chi {chi:g}") for name in ("SEMI", "ZERO-PriDiffR"))
    if found is None or semi is None or zero_ is None:
        return missing(text, paper)
    pruned = [max(each["prunedRatio"], default=0.0) for each in (semi, zero_)]
    measured = f"{found.points()}; prunes {pruned[0]:.0%} where ZERO prunes {pruned[1]:.0%}"
    why = "accuracy by paired seeds; how much migrates depends on the price of the link"
    return Claim(text, paper, measured, verdict(found.above, found.below), why)


def several(results: Results, size: Size) -> Figure:
    """Four stragglers of eight; the first lambda of them migrate."""
    names = ["Baseline", *(f"lambda {x}" for x in size.splits), "SEMI"]
    rows: list[list[Cell]] = []
    times: dict[str, float | None] = {}
    for name in names:
        found = results.get(f"time/vit-1b/several {name}")
        seconds = None if found is None else found["steady"] * EPOCH_ITERATIONS
        times[name] = seconds
        pruned = None if found is None else sum(found["prunedRatio"]) / len(found["prunedRatio"])
        shown = "-" if name == "Baseline" else loss_points(results, f"several {name}")
        rows.append([name, seconds, pruned, shown])
    for case in ("oracle", "evict"):
        found = results.get(f"time/{case}-several/{case} several")
        rows.append([case, None if found is None else found["steady"] * EPOCH_ITERATIONS, 0.0, "lossless"])
    rows.append(["fluid limit (computed)", EPOCH_ITERATIONS * fluid_limit(VIT_1B, several_chis()), 0.0, "lossless"])
    known = [(x, seconds) for x in size.splits if (seconds := times[f"lambda {x}"]) is not None]
    chart = Chart(
        "Four of eight",
        "stragglers that migrate (lambda)",
        "seconds per epoch",
        [
            Series("SEMI with lambda given", [x for x, _ in known], [y for _, y in known]),
        ],
    )
    columns = ("plan", "seconds per epoch", "deleted of all work", "accuracy against the baseline")
    how = f"time: emulated devices, steady state x 782; accuracy: {TRAINED}"
    claims = [_sweet_spot(times)]
    source = "Fig. on lambda (several stragglers)"
    return Figure("several", "Stragglers of chi 8, 6, 4 and 2", source, how, columns, rows, (chart,), claims)


def _sweet_spot(times: dict[str, float | None]) -> Claim:
    text, paper = "the sweet spot is at lambda 3", "lambda 3: nearly ZERO's time at a small loss"
    zero_, three, base = (times.get(name) for name in ("lambda 0", "lambda 3", "Baseline"))
    if zero_ is None or three is None or base is None:
        return missing(text, paper)
    gained = (base - three) / (base - zero_)
    holds = gained >= 0.8
    measured = (
        f"lambda 3 keeps {gained:.0%} of the time that lambda 0 saves: {three:.0f} against {zero_:.0f} s (emulated)"
    )
    why = "0.8 would count as a sweet spot; each migrating straggler sends its whole dY and gets its whole Y back"
    return Claim(text, paper, measured, verdict(holds, not holds), why)


def periods(results: Results, size: Size) -> Figure:
    """How long a straggler must stay for a remedy to pay (ours, simulated)."""
    policies = {"Baseline": BASELINE, "ZERO-Pri": zero("Pri"), "MIG": {"strategy": "MIG"}, "SEMI": {"strategy": "SEMI"}}
    chi = max(size.chis)
    found = {name: [mean_seconds(VIT_1B, policy, chi, p) for p in PERIODS] for name, policy in policies.items()}
    rows: list[list[Cell]] = [[name, *seconds] for name, seconds in found.items()]
    series = [Series(name, list(PERIODS), seconds) for name, seconds in found.items()]
    chart = Chart(
        f"A straggler of chi {chi:g} that moves on",
        "iterations until it moves on",
        "seconds per iteration",
        series,
        True,
    )
    columns = ("strategy", *(f"every {p}" for p in PERIODS))
    how = "simulated: the trainer's own decision on computed times, nothing was run"
    return Figure("periods", "How long stragglers stay", "ours, not in the paper", how, columns, rows, (chart,), ())
