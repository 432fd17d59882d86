"""`python -m heterotp_dashboards.generate ROOT`: write the checked-in boards and rules, and the chart's copies."""

import json
import sys
from pathlib import Path

from heterotp_dashboards.alerts import Thresholds
from heterotp_dashboards.boards import boards
from heterotp_dashboards.rule_files import chart_template, prometheus_rules

CHART_BOARDS = Path("charts/heterotp/files/dashboards")
CHART_RULES = Path("charts/heterotp/templates/prometheusrule.yaml")


def board_files() -> dict[str, str]:
    """Return the boards by file name."""
    return {f"{board['uid']}.json": f"{json.dumps(board, indent=1, ensure_ascii=False)}\n" for board in boards()}


def write_files(directory: Path) -> list[Path]:
    """Write boards and rules for use without the chart; return the written paths. Raises OSError."""
    return _write(directory, {**board_files(), "heterotp-rules.yaml": prometheus_rules(Thresholds())})


def _write(directory: Path, files: dict[str, str]) -> list[Path]:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
    return [directory / name for name in files]


def main(root: Path) -> None:
    """Write all generated files into a checkout."""
    write_files(root / "dashboards")
    _write(root / CHART_BOARDS, board_files())
    _write((root / CHART_RULES).parent, {CHART_RULES.name: chart_template()})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
