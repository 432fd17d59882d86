"""Claims on real CPU ranks: the ones that can fail beside those that emulation decides by construction, and limits."""

import re
import statistics as numbers
from collections.abc import Mapping, Sequence
from typing import Any

from heterotp_cli.bench.figure import Cell, Claim, Figure, Level, judged, missing, verdict
from heterotp_cli.bench.real_cpu import CPU_2, CPU_4, GLOO_8, RealMachine, chis, gpu_machine, strategies, used_chis
from heterotp_cli.bench.scenarios import Size
from heterotp_cli.bench.statistics import Results, Span, ratio, runs_of, steady_of, steady_ratio

NAME = CPU_2.name
LINEAR = 0.15  # of the slope that the measured matmul share predicts
SAVED = 0.8  # share of the products' time that pruning must really save to count as saved
FREE = 0.03  # of an iteration
NEAR_LIMIT = 1.05  # target of this project
REACHED = 0.9  # of the speed-up that is possible
LEAST_GPUS = 2
LIMITS = ("limit, products alone (computed)", "limit, with unit work (computed)")
PHASES = ("matmul", "unit", "fixed", "migrate", "wait", "control")
WORDS = dict(zip(PHASES, ("products", "unit work", "fixed work", "copies", "waiting", "control"), strict=True))
REFERENCES = ("oracle", "evict", "RESHARD", "AUTO")
LEVEL: Level = "cpu"


def key(machine: RealMachine, name: str, chi: float) -> str:
    """Return the key of a strategy's step; references and ours have gangs of their own."""
    step = f"{name} chi {chi:g}"
    gang = f"{machine.name}-{name}-{chi:g}" if name in REFERENCES else machine.name
    return f"time/{gang}/{step}"


def parts(result: Mapping[str, Any]) -> dict[str, float]:
    """Return the seconds of an iteration by phase: products and unit work of the mean rank, the least wait."""
    found = {name: numbers.fmean(result.get(name) or [0.0]) for name in ("matmul", "unit", "fixed", "migrate")}
    return found | {"wait": min(result.get("wait") or [0.0])}


def limits(base: Mapping[str, Any], slow: Sequence[float]) -> tuple[float, float]:
    """Return the least seconds of a lossless method, from an iteration of equal ranks.

    The first counts as if unit work could go to any rank at no time of its own; the second lets it move with units: a
    rank takes M chi + U for an even share. Everything else of the iteration stays as it is.
    """
    seconds = parts(base)
    matmul, unit = seconds["matmul"], seconds["unit"]
    rest = float(base["steady"]) - matmul - unit
    products = matmul * len(slow) / sum(1 / chi for chi in slow)
    both = len(slow) / sum(1 / (matmul * chi + unit) for chi in slow) if matmul + unit else 0.0
    return rest + unit + products, rest + both


# -- claims beside those of other figures -------------------------------------------------------------------------


def share_of_products(results: Results) -> float | None:
    """Return the share of an iteration of equal ranks that is products, as measured."""
    base = results.get(f"time/{NAME}/baseline")
    return None if base is None else parts(base)["matmul"] / float(base["steady"])


def linear(results: Results, size: Size) -> Claim:
    """The Baseline's time grows by the measured share of products with chi."""
    text, paper = "the Baseline's time grows linearly with chi (real CPU ranks)", "linear"
    chi, share = size.chis[-1], share_of_products(results)
    times = steady_ratio(results, f"Baseline chi {chi:g}", "baseline", NAME)
    if times is None or share is None:
        return missing(text, paper, LEVEL)
    slope = times.mapped(lambda each: (each - 1) / (chi - 1))
    why = f"products are {share:.2f} of an iteration of equal ranks as measured; within {LINEAR:.0%} of that slope"
    bounds = share * (1 - LINEAR), share * (1 + LINEAR)
    return Claim(text, paper, f"slope {shown(slope)} per chi", judged(slope, *bounds), why, LEVEL)


def saving(results: Results) -> Claim:
    """Pruning half of all columns saves most of half of the products' time."""
    text, paper = "gamma 1/2 on all ranks saves time (real CPU ranks)", "18.5 % (1B), 23.5 % (3B) less"
    share, times = share_of_products(results), steady_ratio(results, "homogeneous Pri 0.5", "baseline", NAME)
    if times is None or share is None:
        return missing(text, paper, LEVEL)
    saved = times.mapped(lambda each: 1 - each)
    why = f"half of the products is {share / 2:.1%} of an iteration; holds from {SAVED:.0%} of it on: copies cost, too"
    return Claim(text, paper, shown(saved, "{:.1%}") + " less", judged(saved, least=SAVED * share / 2), why, LEVEL)


def free_selection(results: Results, size: Size) -> Claim:
    """Priority selection takes no longer than random selection, where copies take time."""
    text, paper = "priority selection costs nearly no time (real CPU ranks)", "nearly zero"
    gamma = size.gammas[-1]
    times = steady_ratio(results, f"homogeneous Pri {gamma}", f"homogeneous Rd {gamma}", NAME)
    if times is None:
        return missing(text, paper, LEVEL)
    more = times.mapped(lambda each: each - 1)
    why = f"Pri against Rd at gamma {gamma:g}; up to {FREE:.0%} counts as nearly zero"
    return Claim(text, paper, shown(more, "{:+.1%}"), judged(more, most=FREE), why, LEVEL)


def order(results: Results, count: int, gamma: float) -> Claim:
    """Broadcast-reduce beats scatter-gather on real transfers between processes."""
    senders = f"{count} sender{'s' if count > 1 else ''}"
    text = f"broadcast-reduce beats scatter-gather, {senders}, gamma {gamma:g} (real gloo transfers)"
    steps = [f"{primitive} {count} {gamma}" for primitive in ("broadcastReduce", "scatterGather")]
    times = steady_ratio(results, steps[0], steps[1], GLOO_8.name)
    if times is None:
        return missing(text, "faster", LEVEL)
    why = "eight processes on two cores over loopback: no PCIe, and receivers share the sender's cores"
    return Claim(text, "faster", shown(times) + " times", verdict(times.high < 1, times.low > 1), why, LEVEL)


def faster(results: Results, name: str, size: Size, claimed: float) -> Claim:
    """A strategy removes most of the straggling that can be removed."""
    chi = size.chis[-1]
    text, paper = f"{name} at chi {chi:g} against Baseline (real CPU ranks)", f"{claimed} times faster"
    share = share_of_products(results)
    times = steady_ratio(results, f"Baseline chi {chi:g}", f"{name} chi {chi:g}", NAME)
    if times is None or share is None:
        return missing(text, paper, LEVEL)
    ideal = 1 - share + share * chi
    why = f"all straggling removed would be {ideal:.2f} times here; holds from {REACHED:.0%} of it on"
    return Claim(text, paper, shown(times) + " times faster", judged(times, least=REACHED * ideal), why, LEVEL)


def shown(span: Span, form: str = "{:.2f}", where: str = "real CPU ranks") -> str:
    """Return a span as text."""
    return f"{form.format(span.value)} ({form.format(span.low)} .. {form.format(span.high)}, {where})"


# -- the figures of these levels ----------------------------------------------------------------------------------


def real_cpu(results: Results, size: Size) -> Figure:
    """Every strategy on real ranks slowed by real work, beside the limit."""
    notes = (
        "two ranks: pinned to a core each; four ranks: two on each core, so that they slow each other",
        "the limits: the least time of a lossless method by the parts of an iteration of equal ranks, if products "
        "alone are divided by speed, or unit work with them; a method that deletes work can be faster",
    )
    how = "real ranks on this machine, one slowed by computing its products chi times; steady iterations"
    return _real(results, size, (CPU_2, CPU_4), "Every strategy on real CPU ranks", "real CPU ranks", how, notes)


def real_gpu(results: Results, size: Size) -> Figure:
    """Every strategy on real GPUs, beside the limit."""
    found = sorted({int(key[9:].partition("/")[0]) for key in results if re.match(r"time/gpu-\d+/", key)})
    machines = [gpu_machine(gpus) for gpus in found] or [gpu_machine(LEAST_GPUS)]
    how = "real GPUs, one a rank; one of them spins after each product; the paper's ViT-1B cut to four blocks"
    return _real(results, size, machines, "Every strategy on real GPUs", "real GPUs", how, ())


def _real(
    results: Results,
    size: Size,
    machines: Sequence[RealMachine],
    title: str,
    where: str,
    how: str,
    notes: tuple[str, ...],
) -> Figure:
    rows = [row for machine in machines for chi in used_chis(size) for row in _rows(results, size, machine, chi)]
    claims = [_near(results, machines[0], name, chi) for chi in used_chis(size) for name in ("RESHARD", "AUTO")]
    columns = (
        "ranks",
        "chi",
        "strategy",
        f"seconds per iteration ({where})",
        "over the limit by products (computed)",
        "over the limit with unit work (computed)",
        f"deleted share of all work ({where})",
        f"products, unit, fixed, copies, wait: seconds of the slowest or waiting rank ({where})",
    )
    rest = [note for chi in used_chis(size) if (note := _rest(results, machines[0], "AUTO", chi))]
    figure = machines[0].figure
    return Figure(figure, title, "ours, not in the paper", how, columns, rows, (), claims, (*notes, *rest))


def _rows(results: Results, size: Size, machine: RealMachine, chi: float) -> list[list[Cell]]:
    base = results.get(f"time/{machine.name}/baseline")
    if base is None:
        return []
    least = limits(base, chis(machine, chi))
    rows: list[list[Cell]] = [
        [machine.name, chi, name, seconds, *(seconds / each for each in least), 0.0, None]
        for name, seconds in zip(LIMITS, least, strict=True)
    ]
    for name in (*strategies(), *dict(size.policies), "oracle", "evict"):
        found = runs_of(results, key(machine, name, chi))
        if found:
            seconds = numbers.fmean(float(each["steady"]) for each in found)
            deleted = numbers.fmean(found[0].get("prunedRatio") or [0.0])
            over = [seconds / each for each in least]
            rows.append([machine.name, chi, name, seconds, *over, deleted, where_it_goes(found[0])])
    return rows


def where_it_goes(result: Mapping[str, Any]) -> str:
    """Return the largest seconds of each phase over the ranks, and the least wait."""
    most = [max(result.get(name) or [0.0]) for name in ("matmul", "unit", "fixed", "migrate")]
    return ", ".join(f"{seconds:.3f}" for seconds in (*most, min(result.get("wait") or [0.0])))


def excess(base: Mapping[str, Any], mine: Mapping[str, Any], slow: Sequence[float]) -> dict[str, float]:
    """Return by phase what an iteration takes beyond the limit with unit work, seconds of the mean rank.

    At the limit rank i owns a share in proportion to 1 / (M chi_i + U); all else is as with equal ranks.
    """
    seconds = parts(base)
    weights = [1 / (seconds["matmul"] * chi + seconds["unit"]) for chi in slow]
    shares = [weight / sum(weights) for weight in weights]  # of all units; a rank of equal ranks has 1 / ranks
    products = seconds["matmul"] * sum(chi * share for chi, share in zip(slow, shares, strict=True))
    least = {"matmul": products}  # in the mean over ranks, unit work takes what it takes of equal ranks
    found = {}
    for phase in PHASES:
        taken = numbers.fmean(mine.get(phase) or [0.0])
        found[phase] = taken - least.get(phase, numbers.fmean(base.get(phase) or [0.0]))
    return found


def _rest(results: Results, machine: RealMachine, name: str, chi: float) -> str:
    """Return the sentence that says where a strategy's time beyond the limit goes; "": not measured."""
    base, mine = results.get(f"time/{machine.name}/baseline"), results.get(key(machine, name, chi))
    if base is None or mine is None:
        return ""
    found = excess(base, mine, chis(machine, chi))
    terms = ", ".join(f"{WORDS[phase]} {seconds * 1000:+.1f}" for phase, seconds in found.items())
    over = (float(mine["steady"]) - limits(base, chis(machine, chi))[1]) * 1000
    return f"{name} at chi {chi:g} takes {over:+.1f} ms beyond the limit with unit work; of the mean rank: {terms} ms"


def _near(results: Results, machine: RealMachine, name: str, chi: float) -> Claim:
    level: Level = "cpu" if machine.device == "cpu" else "gpu"
    what = "two real CPU ranks" if level == "cpu" else "real GPUs"
    text = f"{name} comes within {NEAR_LIMIT - 1:.0%} of the limit at chi {chi:g} ({what})"
    target = f"at most {NEAR_LIMIT} of the limit (ours)"
    base, mine = results.get(f"time/{machine.name}/baseline"), steady_of(results, key(machine, name, chi))
    if base is None or mine is None:
        return missing(text, target, level)
    least = limits(base, chis(machine, chi))
    over = ratio(mine, Span(least[1], least[1], least[1]))
    why = f"limit with unit work {least[1]:.3f} s; by products alone {least[0]:.3f} s"
    return Claim(text, target, shown(over, where=what) + " of the limit", judged(over, most=NEAR_LIMIT), why, level)
