"""The paper's figures on accuracy: imputation, homogeneous pruning, fixed skew."""

from heterotp_cli.bench.figure import Chart, Claim, Figure, Series, missing, verdict
from heterotp_cli.bench.scenarios import Size
from heterotp_cli.bench.statistics import Results, mean_of, paired

TRAINED = (
    "real training on the digits (a small ViT over 8 ranks, held-out images), ratios given; differences to the "
    "baseline are of paired seeds, with 95 % intervals"
)
GAMMA_SAVES = {"vit-1b": 0.185, "vit-3b": 0.235}
NEAR = 0.03  # of an iteration: how close a saving must come to the paper's to count as reproduced


def loss_points(results: Results, name: str) -> str:
    """Return the change of accuracy against the baseline, in words."""
    found = paired(results, name, "baseline", "accuracy")
    return "-" if found is None else found.points()


def imputation(results: Results, size: Size) -> Figure:
    """Which values stand for gradients that were not computed (gamma 0.5, one rank in turn)."""
    names = ("Same", "Zero", "Average")
    rows = [
        [how, mean_of(results, f"imputation {how}", "accuracy"), loss_points(results, f"imputation {how}")]
        for how in names
    ]
    claims = [_better(results, a, b) for a, b in (("Same", "Zero"), ("Zero", "Average"))]
    return Figure(
        "imputation",
        "Imputation of missing gradients",
        "Fig. 'Impact of different imputation policies'",
        TRAINED,
        ("imputation", "test accuracy", "against the baseline"),
        rows,
        (),
        claims,
        (
            "the columns pruned stay the same for an epoch here (the paper's lineage is kept as long), so Same applies "
            "one old gradient over and over; with plain SGD or a new choice every iteration it would fare better",
        ),
    )


def _better(results: Results, a: str, b: str) -> Claim:
    found = paired(results, f"imputation {a}", f"imputation {b}", "accuracy")
    text = f"{a} is more accurate than {b}"
    if found is None:
        return missing(text, f"{a} > {b}")
    why = "the interval of the paired difference excludes zero" if found.above or found.below else "it includes zero"
    return Claim(text, f"{a} > {b}", found.points(), verdict(found.above, found.below), why)


def homogeneous(results: Results, size: Size) -> Figure:
    """All ranks prune the same ratio."""
    rows, claims = [], []
    for model in size.models:
        base = results.get(f"time/{model.name}/baseline")
        for gamma in size.gammas if base else ():
            for selection in ("Rd", "Pri"):
                found = results.get(f"time/{model.name}/homogeneous {selection} {gamma}")
                ratio = None if found is None or base is None else found["steady"] / base["steady"]
                points = loss_points(results, f"homogeneous {selection} {gamma}") if model is size.models[0] else "-"
                rows.append([model.name, selection, gamma, ratio, points])
        claims.append(_saving(results, model.name))
    claims += [_pri_narrows(results, gamma) for gamma in size.gammas] + [_pri_is_free(results, size)]
    columns = ("model", "selection", "gamma", "time / baseline", "accuracy against the baseline")
    return Figure(
        "homogeneous",
        "Pruning on all ranks",
        "Figs. 'Overall performance in homogeneous environments'",
        f"time: emulated devices, measured; accuracy: {TRAINED}",
        columns,
        rows,
        (_homogeneous_chart(results, size),),
        claims,
    )


def _homogeneous_chart(results: Results, size: Size) -> Chart:
    series = []
    for selection in ("Rd", "Pri"):
        points = [(g, mean_of(results, f"homogeneous {selection} {g}", "accuracy")) for g in size.gammas]
        known = [(g, value) for g, value in points if value is not None]
        series.append(Series(f"ZERO-{selection}", [g for g, _ in known], [100 * value for _, value in known]))
    base = mean_of(results, "baseline", "accuracy")
    if base is not None:
        series.append(Series("baseline", list(size.gammas), [100 * base] * len(size.gammas), True))
    return Chart("Accuracy", "gamma on all ranks", "test accuracy, %", series)


def _saving(results: Results, model: str) -> Claim:
    claimed = GAMMA_SAVES[model]
    text = f"gamma 1/2 on all ranks saves time ({model})"
    base, found = results.get(f"time/{model}/baseline"), results.get(f"time/{model}/homogeneous Pri 0.5")
    if base is None or found is None:
        return missing(text, f"{claimed:.1%} less")
    saved = 1 - found["steady"] / base["steady"]
    share = max(base["matmul"]) / base["steady"]
    why = f"matmul is {share:.2f} of the emulated iteration, of which half can be saved: {share / 2:.1%}"
    near = abs(saved - claimed) <= NEAR
    return Claim(text, f"{claimed:.1%} less", f"{saved:.1%} less (emulated)", verdict(near, not near), why)


def _pri_narrows(results: Results, gamma: float) -> Claim:
    text = f"priority selection loses less than random selection at gamma {gamma:g}"
    claimed = "up to 18 % of the loss saved at 9/10"
    rd, pri = (f"homogeneous {selection} {gamma}" for selection in ("Rd", "Pri"))
    found = paired(results, pri, rd, "accuracy")
    if found is None:
        return missing(text, claimed)
    base, lossy = (mean_of(results, name, "accuracy") for name in ("baseline", rd))
    loss = (base or 0.0) - (lossy or 0.0)
    saved = f", {found.mean / loss:.0%} of the loss of Rd" if loss > 0 else ""
    return Claim(text, claimed, found.points() + saved, verdict(found.above, found.below), "interval of paired seeds")


def _pri_is_free(results: Results, size: Size) -> Claim:
    text, model, gamma = "priority selection costs nearly no time", size.models[0].name, size.gammas[-1]
    rd, pri = (results.get(f"time/{model}/homogeneous {selection} {gamma}") for selection in ("Rd", "Pri"))
    if rd is None or pri is None:
        return missing(text, "nearly zero")
    more = pri["steady"] / rd["steady"] - 1
    near = more <= NEAR
    why = f"Pri against Rd at gamma {gamma:g}; less than {NEAR:.0%} counts as nearly zero"
    return Claim(text, "nearly zero", f"{more:+.1%} (emulated)", verdict(near, not near), why)


def fixed_skew(results: Results, size: Size) -> Figure:
    """One rank at a time prunes, another one every epoch."""
    rows, claims = [], []
    for gamma in size.gammas:
        one, every = f"fixed skew {gamma}", f"homogeneous Pri {gamma}"
        rows.append([gamma, mean_of(results, one, "accuracy"), loss_points(results, one), loss_points(results, every)])
        found = paired(results, one, every, "accuracy")
        text = f"pruning on one rank loses less than on all, gamma {gamma:g}"
        if found is None:
            claims.append(missing(text, "smaller loss"))
            continue
        result = verdict(found.above, found.below)
        claims.append(Claim(text, "smaller loss", found.points(), result, "interval of paired seeds"))
    columns = ("gamma", "test accuracy", "against the baseline", "the same gamma on all ranks")
    title, source = "Pruning on one straggler in turn", "Figs. 'Accuracy variation with fixed straggling skewness'"
    return Figure("fixed-skew", title, source, TRAINED, columns, rows, (), claims)
