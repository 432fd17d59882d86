"""`PYTHONPATH=tools python -m reference DIRECTORY`: write the generated pages."""

import sys
from pathlib import Path

from reference import cli, kinds, metrics

PAGES = {"kinds.md": kinds.page, "metrics.md": metrics.page, "cli.md": cli.page}


def main(directory: Path) -> None:
    """Write one file per page."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (directory / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
