"""The accuracy study on the page: every cell against the baseline of its seeds, and the paper's claims."""

from collections.abc import Sequence
from typing import Any

from heterotp_cli.bench.accuracy_figures import AGAINST, against_baseline, more_accurate
from heterotp_cli.bench.figure import Cell, Claim, Figure, judged, missing, verdict
from heterotp_cli.bench.statistics import Results, by_seed, mean_of, paired
from heterotp_cli.bench.study_cells import COMPARED, GAMMAS, SIZES, StudySize, cells

LOSSLESS = 0.01  # of accuracy: how far a lossless method may lie from the baseline, by the sums' order and the seeds
SAME_LOSS = 1e-3  # in the first iterations, before rounding grows
PRI, RD = "homogeneous Pri {}", "homogeneous Rd {}"


def accuracy(results: Results, size: StudySize) -> Figure:
    """Return the study at one size."""
    names = list(dict.fromkeys(cell.name for cell in cells(size)))
    rows = [row for name in names if (row := _row(results, name)) is not None]
    claims = [_imputed(results, 0.5, *pair) for pair in (("Same", "Zero"), ("Zero", "Average"))]
    claims += [_pri_wins(results, gamma) for gamma in GAMMAS]
    claims += [_grows(results), _loses_at_most(results, "round-robin ZERO-Pri", 0.013)]
    claims += [_loses_at_most(results, "round-robin ZERO-PriDiffE", 0.003)]
    claims += [_semi_loses_less(results, kind) for kind in ("one straggler", "several stragglers")]
    claims += [_lossless(results, name) for name in ("MIG", "RESHARD", "AUTO")]
    claims += [_same_as_gang(results)]
    left = sum(f"trial/{cell.name}/{cell.seed}" not in results for cell in cells(size))
    notes = (
        _size(size),
        f"{left} of {len(cells(size))} cells have no result: not run, for lack of time" if left else "",
    )
    columns = ("cell", "seeds", "test accuracy (real training)", *AGAINST)
    return Figure(
        f"accuracy-{size.name}",
        f"Accuracy on {size.data} ({size.name})",
        "the paper's accuracies, on data that a linear model cannot learn",
        "real trainings; differences to the baseline of the same seeds, with 95 % intervals; gangs: eight real ranks "
        "on emulated devices, one eight times slower, decisions in the loop",
        columns,
        rows,
        (),
        claims,
        tuple(note for note in notes if note),
        f"heterotp bench accuracy --size {size.name}",
    )


def _size(size: StudySize) -> str:
    shape = size.shape
    images = "all" if size.train is None else f"{size.train:,}"
    return (
        f"size {size.name}: {images} training images, a vision transformer of width {shape.hidden_size} and "
        f"{shape.depth} blocks over {size.ranks} ranks, {size.epochs} epochs, {size.seeds} seeds"
    )


def _row(results: Results, name: str) -> list[Cell] | None:
    seeds = by_seed(results, name, "accuracy")
    if not seeds:
        return None
    changes = ("-", "-") if name == "baseline" else against_baseline(results, name)
    return [name, float(len(seeds)), mean_of(results, name, "accuracy"), *changes]


def _imputed(results: Results, gamma: float, better: str, worse: str) -> Claim:
    names = [f"{PRI.format(gamma)} {how}".removesuffix(" Zero") for how in (better, worse)]
    text = f"{better} is more accurate than {worse}, gamma {gamma:g} on all ranks"
    return more_accurate(results, text, f"{better} > {worse}", names[0], names[1])


def _pri_wins(results: Results, gamma: float) -> Claim:
    text = f"priority selection loses less than random selection at gamma {gamma:g}"
    return more_accurate(results, text, "smaller loss", PRI.format(gamma), RD.format(gamma))


def _grows(results: Results) -> Claim:
    text, paper = "loss grows with gamma (Pri)", "loss grows"
    grown = paired(results, PRI.format(GAMMAS[-1]), PRI.format(GAMMAS[0]), "loss")
    if grown is None:
        return missing(text, paper, "training")
    why = f"held-out loss at gamma {GAMMAS[-1]:g} less that at {GAMMAS[0]:g}, by paired seeds"
    return Claim(text, paper, grown.plain(), verdict(grown.above, grown.below), why, "training")


def _loses_at_most(results: Results, name: str, claimed: float) -> Claim:
    text, paper = f"{name} loses little accuracy", f"{claimed:.1%} loss at chi 8"
    found = paired(results, name, "baseline", "accuracy")
    if found is None:
        return missing(text, paper, "training")
    why = "holds when the whole interval is above the paper's loss"
    return Claim(text, paper, found.points(), judged(found, least=-claimed), why, "training")


def _semi_loses_less(results: Results, kind: str) -> Claim:
    text = f"SEMI loses less than ZERO-PriDiffR, {kind}"
    return more_accurate(results, text, "less accuracy lost", f"{kind} SEMI", f"{kind} ZERO-PriDiffR")


def _lossless(results: Results, name: str) -> Claim:
    text, paper = f"{name} loses no accuracy, trained by real ranks", f"lossless; within {LOSSLESS:.0%} (ours)"
    found = paired(results, f"gang {name}", "baseline", "accuracy")
    if found is None:
        return missing(text, paper, "training")
    why = "it sums in another order than the baseline, so that single trainings differ"
    return Claim(text, paper, found.points(), judged(found, -LOSSLESS, LOSSLESS), why, "training")


def _same_as_gang(results: Results) -> Claim:
    """The way in which one process trains all ranks is what real ranks do."""
    text, paper = f"one process trains what a gang of real ranks trains ({COMPARED})", "equal losses (ours)"
    found = [each for seed, each in _replayed(results)]
    if not found:
        return missing(text, paper, "training")
    most = max(each["firstIterationsLossDifference"] for each in found)
    whole = max(each["largestLossDifference"] for each in found)
    measured = f"losses differ by {most:.1e} in the first 50 iterations, {whole:.1e} in all ({len(found)} seeds)"
    why = f"with the gang's own decisions, replayed; holds up to {SAME_LOSS:g} in the first 50: later, rounding grows"
    return Claim(text, paper, measured, verdict(most <= SAME_LOSS, most > SAME_LOSS), why, "training")


def _replayed(results: Results) -> list[tuple[str, dict[str, Any]]]:
    prefix = f"trial/gang {COMPARED}/"
    return [(key, each["replayed"]) for key, each in results.items() if key.startswith(prefix) and "replayed" in each]


def drawn_studies(stored: Sequence[dict[str, Any]]) -> list[Figure]:
    """Return one figure per size of which there are results; stored: files of cells."""
    figures = []
    for size in SIZES.values():
        contents = {(cell.name, cell.seed): cell.content(size) for cell in cells(size)}
        mine = [each for each in stored if contents.get((each["name"], each["seed"])) == each["content"]]
        if mine:
            figures.append(accuracy({f"trial/{each['name']}/{each['seed']}": each for each in mine}, size))
    return figures
