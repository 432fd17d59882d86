"""`heterotp bench accuracy`: the accuracy study, cell by cell."""

import os
import time
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import click

from heterotp_cli.bench.needed import require
from heterotp_cli.errors import BadInput

DATA = ("shapes-32", "cifar10")
FOLDER = Path("paper")
NAMES = ("full", "small", "digits")


@click.command("accuracy")
@click.option(
    "--size",
    "name",
    type=click.Choice(NAMES),
    default="small",
    show_default=True,
    help="full: a ViT of 3.1 million parameters on 50,000 images, days of a small machine; small: hours; digits: "
    "minutes.",
)
@click.option("--cell", "patterns", multiple=True, metavar="PATTERN", help="Cells to train, e.g. 'homogeneous Pri *'.")
@click.option("--cifar10", type=click.Path(path_type=Path), help="Folder with CIFAR-10's files, in place of shapes-32.")
@click.option("--workers", type=click.IntRange(1), help="Trainings at a time; default: one per core.")
@click.option("--list", "listed", is_flag=True, help="Show the cells and which of them are trained; train nothing.")
@click.option("--output", type=click.Path(path_type=Path), default=FOLDER, show_default=True, help="Where to write.")
def command(
    name: str,
    patterns: tuple[str, ...],
    cifar10: Path | None,
    workers: int | None,
    listed: bool,
    output: Path,
) -> None:
    """Train what the paper's accuracies are about: pruning, stragglers and strategies, three seeds each.

    Interrupt it at any time: the same command goes on with the epoch after the last one that was finished. Results are
    one file per cell; the page is written after each run.
    """
    require("torch", "heterotp_trainer", "matplotlib", "jinja2", "scipy")
    from rich.console import Console

    from heterotp_cli.bench.study import Study
    from heterotp_cli.bench.study_cells import SIZES

    size = SIZES[name]
    if cifar10 is not None:
        if size.data == "digits":
            raise BadInput("--cifar10: size digits has its own data: take small or full")
        size = replace(size, data="cifar10", path=str(cifar10.resolve()))
    study = Study(output / f"accuracy-{name}", size)
    chosen = [cell for cell in study.cells if not patterns or any(fnmatchcase(cell.name, each) for each in patterns)]
    if not chosen:
        raise BadInput(f"--cell: {patterns[0]!r}: no cell has such a name: --list shows all")
    console = Console()
    if listed:
        for cell in chosen:
            found = study.result(cell)
            console.print(
                f"{cell.name}, seed {cell.seed}: {'-' if found is None else format(found['accuracy'], '.1%')}"
            )
        return
    _run(study, chosen, workers or os.cpu_count() or 1, console)


def _run(study, chosen, workers: int, console) -> None:  # type: ignore[no-untyped-def]
    """Train with one line per cell and the time left, then write the page; also where it is interrupted."""
    from heterotp_cli.bench.study import run, seconds_left

    left = [cell for cell in chosen if study.result(cell) is None]
    done = [(cell, found["seconds"]) for cell in study.cells if (found := study.result(cell)) is not None]
    console.print(f"{len(chosen) - len(left)} of {len(chosen)} cells are trained")

    def ended(cell, result) -> None:  # type: ignore[no-untyped-def]
        left.remove(cell)
        done.append((cell, result["seconds"]))
        seconds = seconds_left(left, done, workers)
        more = "time left unknown" if seconds is None else f"about {spoken(seconds)} left"
        told = f"{cell.name}, seed {cell.seed}: accuracy {result['accuracy']:.1%}, {spoken(result['seconds'])}"
        console.print(f"{told}; {len(left)} cells to go, {more}", highlight=False, soft_wrap=True)

    try:
        run(study, chosen, workers, ended)
    finally:
        write_page(study, console)


def spoken(seconds: float) -> str:
    """Return a duration for people."""
    minutes = round(seconds / 60)
    if minutes < 2:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02} min"


def write_page(study, console) -> None:  # type: ignore[no-untyped-def]
    """Write the page of all cells so far."""
    from heterotp_cli.bench import page
    from heterotp_cli.bench.study_figures import accuracy

    results = study.results()
    if results:
        about = f"Trained by 'heterotp bench accuracy --size {study.size.name}', {time.strftime('%Y-%m-%d')}."
        path = page.write(study.folder, [accuracy(results, study.size)], about)
        console.print(f"{path}", highlight=False, soft_wrap=True)
