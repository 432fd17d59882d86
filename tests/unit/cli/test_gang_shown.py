"""Who is left of a gang that may lose ranks, as `top`, `explain` and the lines of a run show it."""

import io

from heterotp_api.trainer_status import LostRank, TrainerGang, TrainerStatus
from heterotp_cli.rows import plain_line
from heterotp_cli.verbs.explanation import explain
from heterotp_cli.verbs.table import render
from heterotp_cli.verbs.view import of_run
from rich.console import Console

WORDS = "2/3 ranks live, rank 1 left at iteration 41 (was silent for 5 s), its work is with ranks 0 and 2"


def status():
    lost = (LostRank(rank=1, iteration=41, why="was silent for 5 s"),)
    gang = TrainerGang(started=3, live=2, members=(0, 2), lost=lost)
    return TrainerStatus(job="job", attempt=1, state="running", started_at=0.0, iteration=50, gang=gang)


def test_explain_says_who_left():
    assert WORDS in explain(of_run(status(), [], "running"), 0.0, "heterotp policy set")
    assert WORDS not in explain(of_run(status(), [], "succeeded"), 0.0, "heterotp policy set")


def test_a_run_without_a_terminal_says_so():
    line = plain_line(status(), 0.0)
    assert WORDS in line
    assert all(line.split(" · ")), line  # nothing is measured while a gang regroups: no empty field


def test_top_says_so():
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(render(of_run(status(), [], "running"), 200))
    assert WORDS in console.export_text()
