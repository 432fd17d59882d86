"""`PYTHONPATH=tools python -m reference [--check] DIRECTORY`: write the generated documentation.

The pages are written into DIRECTORY, the tables of the chart's values into its README, the programs of
examples/own-model into docs/convert-your-model.md, the table of the paper's system into docs/algorithms.md.
"""

from pathlib import Path

import click

from reference import chart, cli, kinds, library, metrics, paper, side_by_side

PAGES = {"kinds.md": kinds.page, "metrics.md": metrics.page, "cli.md": cli.page, "library.md": library.page}


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if a file is out of date.")
def main(directory: Path, check: bool) -> None:
    """Write the pages of the reference into DIRECTORY, and the generated parts of other pages."""
    partly = {  # the rest is by hand
        chart.CHART / "README.md": chart.page,
        side_by_side.PAGE: side_by_side.page,
        paper.PAGE: paper.page,
    }
    pages = {**partly, **{directory / name: page for name, page in PAGES.items()}}
    try:
        made = {path: page() for path, page in pages.items()}
    except (chart.Undocumented, library.Undocumented, paper.Misplaced, side_by_side.Misplaced) as error:
        raise click.ClickException(str(error)) from None
    if check:
        _compare(directory, made)
        return
    directory.mkdir(parents=True, exist_ok=True)
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")


def _compare(directory: Path, made: dict[Path, str]) -> None:
    there = {*made, *directory.glob("*")}  # includes pages that are no longer generated
    stale = [str(path) for path in sorted(there) if not path.is_file() or path.read_text("utf-8") != made.get(path)]
    if stale:
        raise click.ClickException(f"{', '.join(stale)}: out of date: run make generate")


if __name__ == "__main__":
    main()
