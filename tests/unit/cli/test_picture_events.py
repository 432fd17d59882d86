"""What report.png shows of decisions, injections, shares and chi: readable at any number of them."""

from itertools import combinations

import matplotlib
import numpy as np
import pytest
from heterotp_api.report import RankReport, RunReport
from heterotp_cli.follow import History
from heterotp_cli.picture import draw
from heterotp_cli.picture_events import MOST_LANES, Span, coloured, labels, lanes_of, spans, work_shares
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

matplotlib.use("Agg")

PHASES = {"compute": 0.05, "matmul": 0.04, "unit": 0.005, "fixed": 0.005, "wait": 0.04, "data": 0, "control": 0}
HELD = {"chi": 1.0, "pruned": 0.0, "migrated": 0.0, "received": 0.0, "injected": 1.0}
ITERATIONS = 600


def history(ranks, decided_at=(), slowed=()):
    """Return a history with decisions at these iterations, and rank 4x slowed in (rank, start, stop)."""
    entries = []
    for i in range(1, ITERATIONS + 1):
        now = [PHASES | HELD | {"share": 1 / ranks} for _ in range(ranks)]
        for rank, start, stop in slowed:
            if start <= i < stop:
                now[rank] |= {"injected": 4.0, "chi": 4.0, "pruned": 0.5}
        number = 1 + sum(at <= i for at in decided_at)
        entry = {"attempt": 1, "iteration": i, "iterationSeconds": 0.1, "measured": True, "loss": 1.0, "accuracy": None}
        entries.append(entry | {"decisionId": number, "ranks": now})
    return History(tuple(range(1, ITERATIONS + 1)), tuple(entries))


def drawn(monkeypatch, log):
    """Return the figure of a history, laid out, and its renderer."""
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *args, **kwargs: figures.append(self))
    ranks = len(log.entries[0]["ranks"])
    places = tuple(RankReport(rank=rank, group="a", share=1 / ranks) for rank in range(ranks))
    report = RunReport(job="demo", state="succeeded", attempt=1, iterations=ITERATIONS, ranks=places)
    draw(log, report.document(), None)
    renderer = FigureCanvasAgg(figures[0]).get_renderer()
    figures[0].draw(renderer)
    return figures[0], renderer


DENSE = [200 + 2 * n for n in range(60)]
SPREAD = [9 + round(9.7 * n) for n in range(60)]
LATE = [595 - n for n in range(20)][::-1]
EVERY_RANK = [(rank, 20 + 30 * rank, 45 + 30 * rank) for rank in range(16)]


@pytest.mark.parametrize("ranks", [3, 16])
@pytest.mark.parametrize(
    "decided_at", [[], [300], [50, 60, 300, 500, 598], DENSE, SPREAD, LATE], ids=["0", "1", "5", "dense", "60", "late"]
)
def test_no_text_of_the_strip_lies_over_another(monkeypatch, ranks, decided_at):
    slowed = EVERY_RANK if ranks == 16 else [(2, 200, 400), (1, 100, 104)]
    figure, renderer = drawn(monkeypatch, history(ranks, decided_at, slowed))
    strip = figure.axes[1]
    texts = [text for text in (*strip.texts, *strip.get_yticklabels()) if text.get_text()]
    boxes = [text.get_window_extent(renderer) for text in texts]
    for (one, first), (other, second) in combinations(zip(texts, boxes, strict=True), 2):
        assert not first.overlaps(second), (one.get_text(), other.get_text())
    figure_box = figure.get_window_extent(renderer)
    assert all(figure_box.x0 <= box.x0 and box.x1 <= figure_box.x1 for box in boxes)
    ticks = next(each for each in strip.collections if isinstance(each, LineCollection))
    assert len(ticks.get_segments()) == len(decided_at)


def test_labels_name_every_decision_once():
    def named(made):
        return [text for _, text in labels(made, 0, 380)]

    assert named([(10, 2), (100, 3), (200, 4)]) == ["2", "3", "4"]
    assert named([(10, 2), (12, 3), (14, 4), (200, 5)]) == ["2-4", "5"]
    assert named([(10, 9), (12, 1), (200, 2)]) == ["2x", "2"]  # counted anew after a resume
    assert named([]) == []
    place, text = labels([(370, 2), (379, 3)], 0, 380)[-1]
    assert text == "2-3" and place + len(text) * 4.6 <= 380


def test_spans_are_the_iterations_of_an_injection():
    log = history(3, slowed=[(2, 200, 400), (1, 590, 700)])
    assert spans(log, 3) == [Span(1, 4.0, 590, 601), Span(2, 4.0, 200, 400)]
    assert lanes_of(spans(log, 3)) == [1, 2]
    assert len(lanes_of(spans(history(16, slowed=EVERY_RANK), 16))) == MOST_LANES


def test_the_share_of_the_work_is_what_a_rank_computes():
    log = history(2, slowed=[(1, 300, 400)])
    for entry in log.entries[299:399]:
        entry["ranks"][0]["received"] = 0.125
        entry["ranks"][1]["migrated"] = 0.25
    assert list(work_shares(log, 0)[[0, 350, 500]]) == [0.5, 0.625, 0.5]
    assert list(work_shares(log, 1)[[0, 350, 500]]) == [0.5, 0.125, 0.5]


def test_of_many_ranks_those_that_changed_are_coloured(monkeypatch):
    log = history(16, slowed=[(13, 200, 400)])
    assert 13 in coloured(log, 16) and len(coloured(log, 16)) == 8
    assert list(coloured(log, 3)) == [0, 1, 2]
    figure, _ = drawn(monkeypatch, log)
    names = [text.get_text() for legend in figure.subfigs[0].legends for text in legend.get_texts()]
    assert "rank 13" in names and names[-1] == "8 other ranks"


def test_a_history_of_an_earlier_version_has_no_panels_of_shares(monkeypatch):
    log = history(3, [300])
    for entry in log.entries:
        entry["ranks"] = [PHASES] * 3
    assert np.isnan(work_shares(log, 0)).all()
    figure, _ = drawn(monkeypatch, log)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles[:3] == ["Iteration time", "", "Loss and accuracy"]
    assert not any("Share" in title for title in titles)
