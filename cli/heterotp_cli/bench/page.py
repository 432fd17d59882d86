"""Writes the results: a CSV and a PNG per figure, and one page with each result beside the paper's claim."""

import base64
import csv
import importlib.resources
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from heterotp_cli.bench.figure import Cell, Chart, Claim, Figure, Verdict

PAGE = "index.html"
TEMPLATE = "page.html.j2"
COLOURS = ("#2f6fb3", "#e8a33d", "#3a8f5c", "#6b4fa0", "#c8452f", "#8a8f98")
INK = "#30343b"


def write(folder: Path, figures: Sequence[Figure], about: str) -> Path:
    """Write everything; return the page."""
    for figure in figures:
        _write_csv(folder / f"{figure.name}.csv", figure)
        for number, chart in enumerate(figure.charts):
            draw(chart, folder / picture(figure, number))
    path = folder / PAGE
    path.write_text(render(figures, about, folder), encoding="utf-8")
    return path


def picture(figure: Figure, number: int) -> str:
    """Return the file name of a figure's chart."""
    return f"{figure.name}{'' if number == 0 else f'-{number + 1}'}.png"


def shown(cell: Cell) -> str:
    """Return the text of a cell."""
    if cell is None:
        return "-"
    if isinstance(cell, str):
        return cell
    return f"{cell:.0f}" if abs(cell) >= 100 else f"{cell:.3g}"


def command_of(figure: Figure, claim: Claim, quick: bool) -> str:
    """Return the command that measures a claim again; trainings belong to the emulated level."""
    if figure.command:
        return figure.command
    level = "emulated" if claim.level == "training" else claim.level
    return f"heterotp bench paper --level {level} --figure {figure.name}{' --quick' if quick else ''} --fresh"


def embedded(path: Path) -> str:
    """Return a picture as an address that holds it, so that the page needs no other file."""
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode("ascii")


def render(figures: Sequence[Figure], about: str, folder: Path) -> str:
    """Return the page; folder: holds the charts."""
    from jinja2 import Environment, StrictUndefined

    source = importlib.resources.files("heterotp_cli.bench").joinpath(TEMPLATE).read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(source).render(
        figures=figures,
        about=about,
        verdicts=get_args(Verdict),
        counts=counts,
        picture=lambda figure, number: embedded(folder / picture(figure, number)),
        shown=shown,
        command=lambda figure, claim: command_of(figure, claim, folder.name == "quick"),
    )


def counts(figure: Figure, verdict: str) -> int:
    """Return how many claims of a figure have this verdict."""
    return sum(claim.verdict == verdict for claim in figure.claims)


def _write_csv(path: Path, figure: Figure) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(figure.columns)
        writer.writerows([["" if cell is None else cell for cell in row] for row in figure.rows])


def draw(chart: Chart, target: Path) -> None:
    """Draw one chart; a series and its dashed companion share a colour."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure as Picture

    picture_ = Picture(figsize=(8.5, 4.2), layout="constrained", facecolor="white")
    axes = picture_.subplots()
    solid = [series for series in chart.series if not series.dashed]
    for series in chart.series:
        shade = colour(series.name, [each.name for each in solid])
        style = {"linestyle": "--", "linewidth": 1.3} if series.dashed else {"marker": "o", "linewidth": 1.8}
        axes.plot(series.xs, series.ys, color=shade, label=series.name, markersize=4, **style)  # type: ignore[arg-type]
    axes.set_title(chart.title, loc="left", fontsize=11, color=INK)
    axes.set_xlabel(chart.x)
    axes.set_ylabel(chart.y)
    axes.set_ylim(bottom=0)
    if chart.log_x:
        axes.set_xscale("log")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e6e8eb", linewidth=0.8)
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    picture_.savefig(target, dpi=110)


def colour(name: str, solid: Sequence[str]) -> str:
    """Return the colour of the solid line that a name begins with, of several the longest."""
    longest = max((each for each in solid if name.startswith(each)), key=len, default=None)
    return INK if longest is None else COLOURS[solid.index(longest) % len(COLOURS)]
