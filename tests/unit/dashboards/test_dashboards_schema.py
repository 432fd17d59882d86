"""The boards conform to Grafana's schema; broken boards are detected (tests/data/grafana/README.md)."""

import copy
import json
from pathlib import Path

import pytest
from heterotp_dashboards.boards import boards
from jsonschema import Draft7Validator
from support.board_queries import panels

SCHEMA = json.loads((Path(__file__).parents[2] / "data" / "grafana" / "schema.json").read_text())
BOARDS = {board["uid"]: board for board in boards()}
KINDS = {
    "timeseries": "Timeseries",
    "stat": "Stat",
    "table": "Table",
    "heatmap": "Heatmap",
    "state-timeline": "StateTimeline",
    "bargauge": "BarGauge",
    "barchart": "BarChart",
}
# @grafana/prometheus reads these from the annotation; Grafana's schema does not contain them
OF_PROMETHEUS = ("expr", "titleFormat", "textFormat", "step")


def complaints(board):
    """Return the schema errors of a board: place and message."""
    found = []

    def hold(kind, where, value):
        if kind not in SCHEMA["definitions"] or value is None:
            return
        validator = Draft7Validator({**SCHEMA, "$ref": f"#/definitions/{kind}"})
        for error in validator.iter_errors(value):
            found.append(f"{where}{error.json_path[1:]}: {error.message[:200]}")

    plain = copy.deepcopy(board)
    for annotation in plain["annotations"]["list"]:
        for key in OF_PROMETHEUS:
            del annotation[key]
    hold("Board", "board", plain)
    for panel in panels(board):
        kind = KINDS[panel["type"]]
        hold(f"{kind}Options", f"{panel['title']} options", panel.get("options"))
        hold(f"{kind}Custom", f"{panel['title']} custom", panel["fieldConfig"]["defaults"].get("custom"))
    return found


@pytest.mark.parametrize("uid", BOARDS)
def test_a_board_conforms_to_the_schema(uid):
    assert complaints(BOARDS[uid]) == []


def panel_of(board, kind):
    return next(panel for panel in board["panels"] if panel["type"] == kind)


BREAKS = {
    "an unknown key of the board": lambda board: board.update(refreshEvery="30s"),
    "a number that is no choice": lambda board: board.update(graphTooltip=7),
    "a title that is no text": lambda board: board.update(title=5),
    "a misspelt option": lambda board: panel_of(board, "timeseries")["options"].update(legendd={}),
    "a word that is no choice": lambda board: panel_of(board, "stat")["options"].update(colorMode="rainbow"),
    "a field option of another kind": lambda board: panel_of(board, "timeseries")["fieldConfig"]["defaults"][
        "custom"
    ].update(showPoints="sometimes"),
    "a bar chart's stacking": lambda board: panel_of(board, "barchart")["options"].update(stacking="high"),
    "a heatmap's option": lambda board: panel_of(board, "heatmap")["options"].update(calculate="no"),
    "a timeline's option": lambda board: panel_of(board, "state-timeline")["options"].update(mergeValues="no"),
    "a bar gauge's option": lambda board: panel_of(board, "bargauge")["options"].update(displayMode="dial"),
    "a table's option": lambda board: panel_of(board, "table")["options"].update(cellHeight="huge"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_board_is_detected(name):
    broken = copy.deepcopy(BOARDS["heterotp-straggler"])
    BREAKS[name](broken)
    assert complaints(broken)
