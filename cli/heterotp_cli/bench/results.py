"""The page of results that is kept in the documentation, rebuilt from the raw data alone."""

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from heterotp_cli.bench import page
from heterotp_cli.bench.drawn import about, drawn
from heterotp_cli.bench.figure import Figure, Verdict
from heterotp_cli.bench.scenarios import FIGURES, FULL, QUICK
from heterotp_cli.bench.store import Store
from heterotp_cli.bench.study import stored
from heterotp_cli.bench.study_figures import drawn_studies

MODES = {"full": FULL, "quick": QUICK}
WHOLE, SHORT = "paper.html", "index.md"
REBUILD = "heterotp bench results"


def figures_in(raw: Path) -> tuple[list[Figure], list[str]]:
    """Return the figures of all raw data in a folder, and a paragraph on each measurement.

    Of a figure that was measured at two sizes, the larger one counts. A claim without a result stays, and says why.
    """
    figures: dict[str, Figure] = {}
    told = []
    for mode, size in MODES.items():
        if not (raw / mode).is_dir():
            continue
        results = Store(raw / mode).results
        measured = [name for name in FIGURES if f"figure/{name}" in results and name not in figures]
        figures |= {each.name: each for each in drawn(measured, results, size)}
        told.append(about(mode, results.get("spent", {"seconds": 0.0})))
    figures |= {each.name: each for each in drawn([name for name in FIGURES if name not in figures], {}, FULL)}
    studies = [each for folder in sorted(raw.glob("accuracy-*")) for each in stored(folder)]
    told += _study_told(studies)
    ordered = [figures[name] for name in FIGURES]
    return [*ordered, *drawn_studies(studies)], told


def _study_told(studies: Sequence[dict[str, Any]]) -> list[str]:
    if not studies:
        return []
    on = studies[-1]["on"]
    versions = ", ".join(f"{name} {on[name]}" for name in ("heterotp", "torch", "python"))
    days = sorted({each["on"]["date"] for each in studies})
    hours = sum(each["seconds"] for each in studies) / 3600
    return [
        f"The accuracy study: {len(studies)} trainings of {hours:.1f} hours in all, by 'heterotp bench accuracy', "
        f"{days[0]} to {days[-1]}, on {on['cores']} cores; {versions}."
    ]


def write(raw: Path, folder: Path) -> Path:
    """Write CSV files, the page with pictures, and the short page with all claims; return the short page."""
    figures, told = figures_in(raw)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.csv"):
        old.unlink()
    with tempfile.TemporaryDirectory() as pictures:
        whole = page.write(Path(pictures), figures, " ".join(told))
        (folder / WHOLE).write_text(whole.read_text(encoding="utf-8"), encoding="utf-8")
        for table in Path(pictures).glob("*.csv"):
            (folder / table.name).write_bytes(table.read_bytes())
    (folder / SHORT).write_text(short(figures, told), encoding="utf-8")
    return folder / SHORT


def short(figures: Sequence[Figure], told: Sequence[str]) -> str:
    """Return the claims of all figures as Markdown: the paper's number, ours, the verdict, the level and the reason."""
    words = get_args(Verdict)
    lines = [
        "# Results",
        "",
        "The measured figures beside the paper's; the pages of this documentation quote the numbers from here.",
        f"[The page with tables, pictures and commands]({WHOLE}) and the CSV files beside it are made of the raw data",
        f"in `docs/results/raw` by `{REBUILD} docs/results/raw --output docs/results`.",
        "",
        *(f"- {text}" for text in told),
        "",
        "| figure | " + " | ".join(words) + " |",
        "| --- |" + " --- |" * len(words),
        *(
            f"| [{figure.title}](#{_anchor(figure.title)}) | "
            + " | ".join(str(page.counts(figure, word) or "") for word in words)
            + " |"
            for figure in figures
        ),
        "",
    ]
    for figure in figures:
        lines += _claims(figure)
    return "\n".join(lines).rstrip() + "\n"


def _claims(figure: Figure) -> list[str]:
    lines = [f"## {figure.title}", "", f"{figure.source}; {figure.how}.", ""]
    if figure.claims:
        lines += ["| claim | the paper | measured | verdict | level | why |", "| --- | --- | --- | --- | --- | --- |"]
        lines += [
            "| " + " | ".join(map(_cell, (c.text, c.paper, c.measured, c.verdict, c.level, c.why))) + " |"
            for c in figure.claims
        ]
        lines.append("")
    notes = [f"- {note}" for note in figure.notes]
    return [*lines, f"Table: [{figure.name}.csv]({figure.name}.csv).", "", *notes, *([""] if notes else [])]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _anchor(title: str) -> str:
    """Return the anchor of a heading, as MkDocs makes it."""
    return re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())
