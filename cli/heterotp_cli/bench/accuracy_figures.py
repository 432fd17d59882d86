"""The paper's figures on accuracy: imputation, homogeneous pruning, fixed skew."""

from collections.abc import Sequence
from itertools import pairwise

from heterotp_cli.bench import cpu_figures
from heterotp_cli.bench.emulation import VIT_1B
from heterotp_cli.bench.figure import Cell, Chart, Claim, Figure, Series, constructed, judged, missing, verdict
from heterotp_cli.bench.scenarios import Size, trial_name
from heterotp_cli.bench.statistics import Results, Span, epoch_ratio, mean_of, paired

EMULATED = "emulated devices; epochs of 782 iterations composed from the measured transition and steady state"
TRAINED = (
    "real training on the digits (a small ViT over 8 ranks, held-out images), ratios given; loss is the held-out "
    "cross-entropy, lower is better; differences to the baseline are of paired seeds, with 95 % intervals"
)
ACCURACY = "test accuracy (real training)"
AGAINST = ("accuracy against the baseline (real training)", "loss against the baseline (real training)")
LOSSLESS = ("lossless", "lossless")
GAMMA_SAVES = {"vit-1b": 0.185, "vit-3b": 0.235}
NEAR = 0.03  # of an iteration: how close a saving must come to the paper's to count as reproduced
HIGHEST = 0.9  # gamma at which the paper gives how much of Rd's loss Pri saves
PAIRED = "interval of paired seeds"


def against_baseline(results: Results, name: str, model: str = VIT_1B.name) -> tuple[str, str]:
    """Return the changes of accuracy and loss against the baseline of a model, as text."""
    names = trial_name(model, name), trial_name(model, "baseline")
    accuracy, loss = (paired(results, *names, what) for what in ("accuracy", "loss"))
    return "-" if accuracy is None else accuracy.points(), "-" if loss is None else loss.plain()


def more_accurate(results: Results, text: str, paper: str, name: str, other: str) -> Claim:
    """Return the claim that one training is more accurate than another, judged by paired seeds."""
    found = paired(results, name, other, "accuracy")
    if found is None:
        return missing(text, paper, "training")
    why = f"the {PAIRED} {'excludes' if found.above or found.below else 'includes'} zero"
    return Claim(text, paper, found.points(), verdict(found.above, found.below), why, "training")


def imputation(results: Results, size: Size) -> Figure:
    """Which values replace gradients that were not computed (gamma 0.5, one rank in turn)."""
    names = {how: f"imputation {how}" for how in ("Same", "Zero", "Average")}
    rows = [[how, mean_of(results, name, "accuracy"), *against_baseline(results, name)] for how, name in names.items()]
    claims = [
        more_accurate(results, f"{a} is more accurate than {b}", f"{a} > {b}", names[a], names[b])
        for a, b in pairwise(names)
    ]
    return Figure(
        "imputation",
        "Imputation of missing gradients",
        "Fig. 'Impact of different imputation policies'",
        TRAINED,
        ("imputation", ACCURACY, *AGAINST),
        rows,
        (),
        claims,
        (
            "the columns pruned stay the same for an epoch here (the paper's lineage is kept as long), so Same applies "
            "one old gradient over and over; with plain SGD or a new choice every iteration it would fare better",
        ),
    )


def homogeneous(results: Results, size: Size) -> Figure:
    """All ranks prune the same ratio."""
    first, highest = size.models[0].name, size.gammas[-1]
    rows = [row for model in size.models for row in _homogeneous_rows(results, size, model.name)]
    known = [model.name for model in size.models if model.name in GAMMA_SAVES]
    claims = [*(_saving(results, model) for model in known), cpu_figures.saving(results)]
    claims += [_grows(results, model, size.gammas) for model in known]
    claims += [_pri_narrows(results, gamma, model) for model in known for gamma in size.gammas]
    claims += [_pri_cuts(results), _pri_is_free(results, first, highest), cpu_figures.free_selection(results, size)]
    return Figure(
        "homogeneous",
        "Pruning on all ranks",
        "Figs. 'Overall performance in homogeneous environments'",
        f"time: {EMULATED}; accuracy: {TRAINED}",
        ("model", "selection", "gamma", "time / baseline (emulated)", *AGAINST),
        rows,
        (_homogeneous_chart(results, size),),
        claims,
    )


def _homogeneous_rows(results: Results, size: Size, model: str) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for gamma in size.gammas if f"time/{model}/baseline" in results else ():
        for selection in ("Rd", "Pri"):
            name = f"homogeneous {selection} {gamma}"
            found = epoch_ratio(results, name, "baseline", model)
            changes = against_baseline(results, name, model)
            rows.append([model, selection, gamma, None if found is None else found.value, *changes])
    return rows


def _homogeneous_chart(results: Results, size: Size) -> Chart:
    series = []
    for selection in ("Rd", "Pri"):
        points = [(g, mean_of(results, f"homogeneous {selection} {g}", "accuracy")) for g in size.gammas]
        known = [(g, value) for g, value in points if value is not None]
        series.append(Series(f"ZERO-{selection}", [g for g, _ in known], [100 * value for _, value in known]))
    base = mean_of(results, "baseline", "accuracy")
    if base is not None:
        series.append(Series("baseline", list(size.gammas), [100 * base] * len(size.gammas), True))
    return Chart("Accuracy", "gamma on all ranks", "test accuracy, % (real training)", series)


def _saving(results: Results, model: str) -> Claim:
    text, claimed = f"gamma 1/2 on all ranks saves time ({model})", GAMMA_SAVES[model]
    paper = f"{claimed:.1%} less"
    found = epoch_ratio(results, "homogeneous Pri 0.5", "baseline", model)
    if found is None:
        return missing(text, paper)
    base, saved = results[f"time/{model}/baseline"], found.mapped(lambda times: 1 - times)
    share = max(base["matmul"]) / base["steady"]
    why = f"matmul is {share:.2f} of the emulated iteration, which follows from the paper's own saving: twice that"
    return constructed(text, paper, saved.emulated("{:.1%}", " less"), why)


def _grows(results: Results, model: str, gammas: Sequence[float]) -> Claim:
    text, paper = f"loss grows with gamma (Pri, {model})", "loss grows"
    names = [trial_name(model, f"homogeneous Pri {gamma}") for gamma in gammas]
    grown = paired(results, names[-1], names[0], "loss")
    if grown is None:
        return missing(text, paper, "training")
    why = f"loss at gamma {gammas[-1]:g} less that at {gammas[0]:g}: the {PAIRED} is above zero"
    return Claim(text, paper, grown.plain(), verdict(grown.above, grown.below), why, "training")


def _pri_narrows(results: Results, gamma: float, model: str) -> Claim:
    text = f"priority selection loses less than random selection at gamma {gamma:g} ({model})"
    rd, pri = (trial_name(model, f"homogeneous {selection} {gamma}") for selection in ("Rd", "Pri"))
    return more_accurate(results, text, "smaller loss", pri, rd)


def _pri_cuts(results: Results) -> Claim:
    text, paper = "Pri cuts the loss of Rd by up to 18 % at gamma 9/10", "up to 18 % of the loss of Rd"
    rd, pri = (f"homogeneous {selection} {HIGHEST}" for selection in ("Rd", "Pri"))
    won, lost = paired(results, pri, rd, "accuracy"), paired(results, "baseline", rd, "accuracy")
    if won is None or lost is None:
        return missing(text, paper)
    if lost.mean <= 0:
        why = "Rd loses no accuracy, so there is nothing to cut"
        return Claim(text, paper, won.points(), "undecided", why, "training")
    measured = f"{won.mean / lost.mean:.0%} of the {lost.mean * 100:.1f} points that Rd loses; {won.points()}"
    why = "accuracy of Pri less that of Rd, by paired seeds: holds where all of the interval is above zero"
    return Claim(text, paper, measured, verdict(won.above, won.below), why, "training")


def _pri_is_free(results: Results, model: str, gamma: float) -> Claim:
    text, paper = "priority selection costs nearly no time", "nearly zero"
    rd, pri = (f"homogeneous {selection} {gamma}" for selection in ("Rd", "Pri"))
    found = epoch_ratio(results, pri, rd, model)
    if found is None:
        return missing(text, paper)
    measured = found.mapped(lambda each: each - 1).emulated("{:+.1%}")
    return constructed(text, paper, measured, "selecting and copying columns costs no emulated time")


def no_slower(text: str, paper: str, times: Span | None, most: float, why: str) -> Claim:
    """Return the claim that one step takes at most such a share longer than another; times: their ratio."""
    if times is None:
        return missing(text, paper)
    more = times.mapped(lambda each: each - 1)
    return Claim(text, paper, more.emulated("{:+.1%}"), judged(more, most=most), why)


def fixed_skew(results: Results, size: Size) -> Figure:
    """One rank at a time prunes, another one every epoch."""
    rows: list[list[Cell]] = []
    claims: list[Claim] = []
    for model in (each.name for each in size.models):
        for gamma in size.gammas:
            one, every = f"fixed skew {gamma}", f"homogeneous Pri {gamma}"
            accuracy = mean_of(results, trial_name(model, one), "accuracy")
            same = against_baseline(results, every, model)[0]
            rows.append([model, gamma, accuracy, *against_baseline(results, one, model), same])
            text = f"pruning on one rank loses less than on all, gamma {gamma:g} ({model})"
            names = trial_name(model, one), trial_name(model, every)
            claims.append(more_accurate(results, text, "smaller loss", *names))
    columns = ("model", "gamma", ACCURACY, *AGAINST, "accuracy with the same gamma on all ranks (real training)")
    title, source = "Pruning on one straggler in turn", "Figs. 'Accuracy variation with fixed straggling skewness'"
    return Figure("fixed-skew", title, source, TRAINED, columns, rows, (), claims)
