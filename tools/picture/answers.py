"""`answers.py BOARD.json PROMETHEUS_URL OUT.js [NAME=VALUE...]`: query all panels of a board for page.tsx.

Environment: MINUTES (30) before END (now, unix seconds), STEP (15 s) between points, RATE (1m) for rates, WIDTH (1600)
of the picture in pixels. Prints the height in pixels.
"""

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from support.board_queries import Window, ask, board_queries, load_board, resolve_variables

CELL = 38  # pixels of one grid row, as in page.tsx


def main(board_file: str, url: str, out: str, *chosen: str) -> None:
    """Write OUT.js."""
    end = float(os.environ.get("END", time.time()))
    start = end - 60 * float(os.environ.get("MINUTES", 30))
    window = Window(start, end, int(os.environ.get("STEP", 15)), os.environ.get("RATE", "1m"))
    board, width = load_board(Path(board_file)), int(os.environ.get("WIDTH", 1600))
    values = resolve_variables(board, url, window, **dict(pair.split("=", 1) for pair in chosen))
    questions = board_queries(board, values, window)
    data = {
        "board": board,
        "answers": {f"{one.panel}/{one.ref}": ask(one, url, window) for one in questions if one.panel},
        "values": values,
        "from": window.start * 1000,
        "to": window.end * 1000,
        "step": window.step,
        "width": width,
    }
    Path(out).write_text(f"window.__DATA__ = {json.dumps(data)};\n", encoding="utf-8")
    print(CELL * max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
