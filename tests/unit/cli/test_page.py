"""report.html: what it shows, that it needs no network, that texts of a run cannot become markup, its size."""

import json
import re

import pytest
from heterotp_api.report import RankReport, RunReport
from heterotp_cli.follow import History
from heterotp_cli.page.content import FEWEST_COLUMNS, MOST_CELLS, PHASES, content
from heterotp_cli.page.write import page, write_page
from support.chromium import dom

HOSTILE = "</script><script>document.title='taken'</script><!--"


def entry(iteration, ranks, **changes):
    now = [dict.fromkeys(PHASES, 0.01) | {"chi": None} for _ in range(ranks)]
    base = {"attempt": 1, "iteration": iteration, "iterationSeconds": 0.1, "measured": True, "loss": 1.0}
    return base | {"accuracy": None, "ranks": now} | changes


def history(*entries):
    return History(tuple(e["iteration"] for e in entries), entries)


def report(ranks, **changes):
    rows = tuple(RankReport(rank=rank, group="a", share=1 / ranks) for rank in range(ranks))
    return RunReport(job="demo", state="succeeded", attempt=1, iterations=9, ranks=rows).document() | changes


def slowed(iteration, chi):
    made = entry(iteration, 2)
    made["ranks"][1]["chi"] = chi
    return made


def test_chi_of_a_gap_is_the_last_one_known():
    log = history(*(slowed(i, chi) for i, chi in enumerate([None, 1.0, None, 4.004, None], 1)))
    assert content(log, report(2))["chi"][1] == [None, 1.0, 1.0, 4.0, 4.0]


def test_lost_time_is_a_part_of_the_iterations_of_which_it_is_known():
    late, unknown = entry(1, 2, iterationSeconds=0.4), entry(2, 2)
    late["ranks"][0]["blamed"], late["ranks"][1]["blamed"] = 0.0, 0.1
    log = history(late, unknown)
    assert content(log, report(2))["lost"] == [[0, None], [0.25, None]]


def test_times_are_of_measured_iterations_only():
    unmeasured = entry(2, 2, measured=False, iterationSeconds=9.0)
    unmeasured["ranks"][0]["wait"] = 9.0
    shown = content(history(entry(1, 2), unmeasured), report(2))
    assert shown["seconds"] == [0.1, None]
    assert shown["ranks"][0]["wait"] == pytest.approx(0.01)


def test_histories_without_chi_and_with_infinite_loss_are_shown():
    early = entry(1, 2, loss=float("nan"))
    for rank in early["ranks"]:
        del rank["chi"]
    shown = content(history(early, entry(2, 1)), report(2))
    assert shown["loss"] == [None, 1.0]
    assert shown["chi"] == shown["lost"] == [[None, None], [None, None]]


def test_many_ranks_and_iterations_bound_the_page():
    log = history(*(entry(i, 1024) for i in range(1, 301)))
    cells = content(log, report(1024))["chi"]
    assert len(cells[0]) >= FEWEST_COLUMNS and len(cells) * len(cells[0]) <= MOST_CELLS


def test_the_page_names_no_other_place():
    text = page(history(entry(1, 2), entry(2, 2)), report(2))
    assert not re.findall(r"""(?:src|href)\s*=\s*["']|url\(|@import""", text)
    assert "default-src 'none'" in text and "connect-src 'none'" in text
    assert not re.findall("@[A-Z]+@", text)
    assert "Leon Sorokin" in text


def test_a_text_of_the_run_cannot_end_its_script():
    text = page(history(entry(1, 2), entry(2, 2)), report(2, job=HOSTILE, reason=HOSTILE))
    data = re.search(r'id="data">(.*?)</script>', text)[1]
    assert json.loads(data)["reason"] == HOSTILE
    assert HOSTILE not in text


@pytest.mark.parametrize("ranks", [2, 1024])
def test_chromium_shows_the_page(tmp_path, ranks):
    made = {"attempt": 1, "iteration": 2, "decisionId": 1, "reason": HOSTILE}
    write_page(history(entry(1, ranks), entry(2, ranks)), report(ranks, decisions=[made]), tmp_path / "report.html")
    shown = dom((tmp_path / "report.html").as_uri(), tmp_path / "browser")
    assert 'data-ready="yes"' in shown  # the script came to its end
    assert "<title>demo - HeteroTP</title>" in shown
    assert f"1-{min(50, ranks)} of {ranks}" in shown
    assert shown.count('class="stack"') == min(50, ranks)
    assert "decision 1): &lt;/script&gt;" in shown
